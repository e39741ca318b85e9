"""What is read from tables whose columns are the parts of the data, and whose columns share a name."""

import pytest

from trainmaster.agent.metrics.parse import Parser

LUDWIG = [
    ("Running evaluation for step: 10, epoch: 1", (10, {})),
    ("╒═════════════╤═════════╤══════════════╤════════╕", None),
    ("│             │   train │   validation │   test │", None),
    ("╞═════════════╪═════════╪══════════════╪════════╡", None),
    ("│ roc_auc     │  0.5301 │       0.6329 │ 0.4661 │", (None, {"train_roc_auc": 0.5301, "validation_roc_auc": 0.6329, "test_roc_auc": 0.4661})),
    ("├─────────────┼─────────┼──────────────┼────────┤", None),
    ("│ specificity │  0.8520 │       0.8085 │        │", (None, {"train_specificity": 0.852, "validation_specificity": 0.8085})),
    ("├─────────────┼─────────┼──────────────┼────────┤", None),
    ("│ hits_at_k   │  0.8520 │       0.8085 │ 0.5000 │", (None, {"train_hits_at_k": 0.852, "validation_hits_at_k": 0.8085, "test_hits_at_k": 0.5})),
    ("╘═════════════╧═════════╧══════════════╧════════╛", None),
    ("Evaluation took 0.7617s", None),
    ("│ jaccard     │  0.8520 │       0.8085 │ 0.7500 │", None),
]
SIZES = [
    ("│             │   train │   validation │   test │", None),
    ("│ rows        │     630 │           90 │    180 │", None),
    ("│ size (MB)   │    1.25 │         0.25 │   0.50 │", None),
]
REPORT = [
    ("│ Validation metric               │ roc_auc            │", None),
    ("├─────────────────────────────────┼────────────────────┤", None),
    ("│ Best model step                 │ 490                │", None),
    ("├─────────────────────────────────┼────────────────────┤", None),
    ("│ Best model's test roc_auc       │ 0.8861454129219055 │", None),
    ("╘═════════════════════════════════╧════════════════════╛", None),
]
GPLEARN = [
    ("    |   Population Average    |             Best Individual              |", None),
    ("---- ------------------------- ------------------------------------------ ----------", None),
    (" Gen   Length          Fitness   Length          Fitness      OOB Fitness  Time Left", None),
    (
        "   0    38.13          458.578        5         0.320666         0.556764      1.98m",
        (
            0,
            {
                "Population_Average_Length": 38.13,
                "Population_Average_Fitness": 458.578,
                "Best_Individual_Length": 5.0,
                "Best_Individual_Fitness": 0.320666,
                "OOB_Fitness": 0.556764,
            },
        ),
    ),
]
ALONE = [  # without a line of groups, or with one that is about other columns
    (" Gen   Length          Fitness   Length          Fitness", None),
    ("   0    38.13          458.578        5         0.320666", (0, {"Length": 5.0, "Fitness": 0.320666})),
]
CORNAC = [
    ("VALIDATION:", None),
    ("...", None),
    ("      |   RMSE | NDCG@20 | Time (s)", None),
    ("----- + ------ + ------- + --------", None),
    ("MF    | 0.5934 |  0.1953 |   0.2130", (None, {"validation_MF_RMSE": 0.5934, "validation_MF_NDCG@20": 0.1953})),
    ("TEST:", None),
    ("...", None),
    ("      |    MAE |   RMSE |    AUC | NDCG@20 | Train (s) | Test (s)", None),
    ("----- + ------ + ------ + ------ + ------- + --------- + --------", None),
    ("MF    | 0.3948 | 0.4934 | 0.6829 |  0.0953 |    0.9782 |   0.3130", (None, {"test_MF_MAE": 0.3948, "test_MF_RMSE": 0.4934, "test_MF_AUC": 0.6829, "test_MF_NDCG@20": 0.0953})),
    ("Most Pop | N/A |    N/A | 0.4863 |  0.0472 |   11.8221 |   3.9287", (None, {"test_Most_Pop_AUC": 0.4863, "test_Most_Pop_NDCG@20": 0.0472})),
    ("", None),
    ("MF    | 0.3948 | 0.4934 | 0.6829", None),
]
MARKDOWN = [  # of pandas
    ("|        |   loss |   accuracy |   rows |", None),
    ("|:-------|-------:|-----------:|-------:|", None),
    ("| linear | 0.25   |       0.75 |    120 |", (None, {"linear_loss": 0.25, "linear_accuracy": 0.75})),
]
OPTIONS = [
    ("|           |   loss |   batch |", None),
    ("| model     | 0.25   |      75 |", None),
    ("|           |   rows |   size (MB) |", None),
    ("| data      | 0.25   |        75.5 |", None),
]
EPOCHS = [("        | train_loss | val_loss", None), ("epoch 1 | 0.5        | 0.75", (1, {}))]


@pytest.mark.parametrize("lines", [LUDWIG, SIZES, REPORT, GPLEARN, ALONE, CORNAC, MARKDOWN, OPTIONS, EPOCHS])
def test_the_lines_of_a_table(lines: list[tuple[str, object]]) -> None:
    parser = Parser()
    for line, read in lines:
        assert parser.parse(line.encode()) == read, line


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        ([(0, 0), (0, 500), (0, 1000), (1, 1500), (2, 2500)], [0, 500, 1000, 1500, 2500]),
        ([(0, 0), (2, 500), (4, 1000)], [0, 500, 1000]),
        ([(0, 100), (0, 200), (1, 100), (1, 200), (2, 100)], [100, 200, 300, 400, 500]),
    ],
)
def test_a_table_of_an_epoch_and_a_batch_is_at_the_step_over_all_epochs(rows: list[tuple[int, int]], steps: list[int]) -> None:
    """Imitation's behavior cloning: of an epoch, only its last table was kept."""
    table = "| batch_size | 32  |\n| bc/        |     |\n|    batch   | {1} |\n|    epoch   | {0} |\n|    loss    | 0.5 |\n-----------"
    parser = Parser()
    found = [parser.parse(line.encode()) for row in rows for line in table.format(*row).split("\n")]
    assert [read for read in found if read is not None] == [(step, {"batch_size": 32.0, "bc/loss": 0.5}) for step in steps]
