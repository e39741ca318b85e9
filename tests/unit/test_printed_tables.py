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


@pytest.mark.parametrize("lines", [LUDWIG, SIZES, REPORT, GPLEARN, ALONE])
def test_the_lines_of_a_table(lines: list[tuple[str, object]]) -> None:
    parser = Parser()
    for line, read in lines:
        assert parser.parse(line.encode()) == read, line
