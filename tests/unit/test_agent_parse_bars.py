"""What bars say: their steps, and whose values they show."""


import pytest
from test_agent_parse import read

from trainmaster.agent.metrics.parse import Parser

EPOCHS = "Training epochs on cpu: 100%|###| {}/4 [00:00<00:00,  4.99epoch/s{}]"


@pytest.mark.parametrize(
    ("drawn", "wanted"),
    [
        # PyKEEN: `for epoch in tqdm(...): ...; bar.set_postfix(...)`, each drawn before the bar moves on.
        ([(0, None), (0, 1.4), (1, 1.4), (1, 1.3), (2, 1.3), (2, 1.1), (3, 1.1), (4, 1.1), (4, 1.1)], {1: 1.4, 2: 1.3, 3: 1.1, 4: 1.1}),
        ([(0, None), (0, 1.4), (1, 1.3), (2, 1.1)], {2: 1.3, 3: 1.1}),  # moves that are drawn too soon are left out
        # A fast bar moves by three at once, and each state is drawn twice.
        ([(0, None), (0, 1.9), (0, 1.9), (1, 1.9), (1, 1.8), (1, 1.8), (1, 1.7), (1, 1.7), (1, 1.6), (4, 1.6)],
         {1: 1.9, 2: 1.8, 4: 1.6}),  # which step had 1.7 is not known
        # Each step changes two values, one after the other.
        ([(0, None), (0, 1.9), (0, 1.8), (1, 1.8), (1, 1.7), (1, 1.6), (2, 1.6), (2, 1.5), (2, 1.4)], {1: 1.8, 2: 1.6, 3: 1.4}),
        ([(2, None), (2, 1.4), (3, 1.4), (3, 1.3), (4, 1.3)], {3: 1.4, 4: 1.3}),  # it begins at 2
        # `bar.update(1)`, and then `bar.set_postfix(...)`.
        ([(0, None), (1, None), (1, 1.4), (2, 1.4), (2, 1.3), (3, 1.3), (3, 1.1)], {1: 1.4, 2: 1.3, 3: 1.1}),
        ([(0, None), (0, 0.0), (1, 0.0), (1, 1.4), (2, 1.4), (2, 1.3)], {1: 1.4, 2: 1.3}),  # 0.0 was not measured
        ([(1, 1.4), (2, 1.4), (2, 1.3)], {1: 1.4, 2: 1.3}),  # the beginning was not seen
    ],
)  # fmt: skip
def test_values_in_a_bar_belong_to_the_step_that_made_them(drawn: list[tuple[int, float | None]], wanted: dict[int, float]) -> None:
    lines = [EPOCHS.format(at, "" if loss is None else f", loss={loss}") for at, loss in drawn]
    assert {step: values["loss"] for step, values in read(*lines)} == wanted


def test_the_bar_of_a_new_epoch_says_nothing_of_the_epoch_before() -> None:
    """Its first values, drawn at 0/60, replaced the last ones of the epoch before, and were called the best."""
    states = [(1, 60, 0.506), (2, 0, None), (2, 0, 0.45), (2, 0, 0.45), (2, 0, 0.39), (2, 0, 0.41), (2, 3, 0.41), (2, 3, 0.47), (2, 60, 0.47)]
    lines = [f"epoch {epoch}: 9%|###| {at}/60 [00:01<00:01, 9.0it/s{'' if loss is None else f', loss={loss}'}]" for epoch, at, loss in states]
    assert {step: values["loss"] for step, values in read(*lines)} == {60: 0.506, 63: 0.41, 64: 0.47, 120: 0.47}


def test_a_bar_goes_on_giving_steps_where_a_line_names_the_same_ones() -> None:
    """d3rlpy: from the first named step on, a whole epoch's values were put on it."""
    bar = "Epoch {}/2: 100%|###| {}/500 [00:03<00:00, 160.72it/s, loss={}]"
    lines = [bar.format(1, 500, 1.15), "step 500: val_loss 1.2", bar.format(2, 250, 1.05), bar.format(2, 500, 1.04), "step 1000: val_loss 1.2"]
    assert [step for step, _ in read(*lines)] == [500, 500, 750, 1000, 1000]
    lines[1] = "step 125: val_loss 1.2"  # of four batches each
    assert [step for step, _ in read(*lines)] == [500, 125, None, None, 1000]


def test_what_lightning_monitors_has_its_own_name() -> None:
    line = "Epoch 0, global step 50: '{}' reached 0.25 (best 0.25), saving model to '/out/epoch=0-step=50.ckpt' as top 1"
    assert read(line.format("val_loss")) == [(50, {"val_loss": 0.25})]
    assert read(line.format("val/acc")) == [(50, {"val/acc": 0.25})]


def test_bars_between_the_rows_of_a_table_do_not_end_it() -> None:
    """fastai draws its bars a hundred times between the header and a row, and nothing of any usual run was read."""
    bars = [f"Epoch 1/2 : |----| {percent}.00% [{percent}/99 00:00<?]" for percent in range(90)]
    lines = ["epoch     train_loss  valid_loss  time    ", *bars, "0         0.5       0.6    00:01    ", *bars, "1         0.4       0.7    00:01    "]
    parser = Parser()
    assert [found for line in lines if (found := parser.parse(line.encode())) is not None] == [
        (0, {"train_loss": 0.5, "valid_loss": 0.6}), (1, {"train_loss": 0.4, "valid_loss": 0.7}),
    ]  # fmt: skip


def test_a_state_that_is_drawn_twice_is_one_point_where_the_bar_names_no_step() -> None:
    """Of pykan: the values are set, then the bar moves on. Equal losses of two steps, at two positions, are two points."""
    drawn = [(0, None), (0, 0.17), (1, 0.17), (1, 0.05), (2, 0.05), (2, 0.05), (3, 0.04)]
    form = "| train_loss: {:.2e} | test_loss: 2.22e-01 | reg: 1.72e+01 | :  20%|██ | {}/15 [00:06<01:29,  6.37s/it]"
    start = "description:   0%|      | {}/15 [00:00<?, ?it/s]"
    lines = [start.format(at) if loss is None else form.format(loss, at) for at, loss in drawn]
    assert [(step, values["train_loss"]) for step, values in read(*lines)] == [(None, 0.17), (None, 0.05), (None, 0.04)]
    cut = [line if "?it" in line else line[: line.index("t]")] for line in lines]  # by `ncols`: the unit is not known
    cut[1] = cut[1].replace("6.37s/i", "?it/s")
    assert [values["train_loss"] for _, values in read(*cut)] == [0.17, 0.05, 0.04]
    same = [f"{at * 10}%|█ | {at}/10 [00:06<01:29,  6.37it/s, loss=0.5]" for at in (1, 2, 3)]
    assert read(*same) == [(None, {"loss": 0.5})] * 3


def test_what_stands_beside_two_measured_values_before_a_bar_is_read() -> None:
    """Of pykan: its regularization."""
    line = "| train_loss: 1.70e-01 | test_loss: 2.22e-01 | reg: 1.72e+01 | :   7%|▋ | 1/15 [00:06<01:29,  6.37s/it]"
    assert Parser().parse(line.encode()) == (None, {"train_loss": 0.17, "test_loss": 0.222, "reg": 17.2})


def test_a_bar_that_is_wiped_between_the_rows_of_a_table_names_no_epoch() -> None:
    """fastprogress writes blanks over its bar, `Epoch 1/2 :`, before the row of epoch 0: the steps of each run fell back to 0."""
    header, row, wiped = "epoch     train_loss  time    ", "0         0.5       00:01    ", "Epoch 1/2 :" + 60 * " "
    parser = Parser()
    assert [parser.parse(line.encode()) for line in (header, wiped, row)] == [None, None, (0, {"train_loss": 0.5})]
    heading = [parser.parse(line.encode()) for line in ("Epoch 5:", "loss: 0.25")]  # of another part, after a table
    assert heading == [(5, {}), (None, {"loss": 0.25})]


@pytest.mark.parametrize(
    ("printed", "steps"),
    [
        # PyTorch's tutorial: all of an epoch were at its number, and each replaced the one before
        ("Epoch 1\n-----\nloss: 2.5  [   64/600]\nloss: 2.25  [  364/600]\nEpoch 2\nloss: 2.0  [   64/600]", [64, 364, 664]),
        # MONAI's: positions with another total are those of the validation
        ("epoch 1/60\n1/5, train_loss: 0.5\n5/5, train_loss: 0.4\n1/3, val_loss: 0.5\nepoch 2/60\n1/5, train_loss: 0.3", [1, 5, None, 6]),
        ("step 10 loss 0.5\nEpoch 1\nloss: 2.5  [   64/600]", [10, None]),  # it names its steps elsewhere
        ("loss: 2.5  [   64/600]", [None]),
        ("Epoch 1, loss 0.5\nloss: 2.5  [   64/600]", [1, None]),
    ],
)
def test_a_position_on_a_line_of_its_own_is_that_in_the_epoch_above(printed: str, steps: list[int | None]) -> None:
    parser = Parser()
    found = [parser.parse(line.encode()) for line in printed.splitlines()]
    assert [one[0] for one in found if one is not None and one[1]] == steps


EPOCH_BAR = "Epoch:  25%|██▌  | {}/3 [00:02<00:07,  2.40s/it]"
BATCHES = "{}:  40%|████ | {}/5 [00:01<00:01,  5.53it/s{}]"


def below_epochs(drawn: list[tuple[str, int, float | None]]) -> list[tuple[int | None, float]]:
    """The steps and values of a bar of epochs, `Epoch`, and of others below it."""
    lines = [
        EPOCH_BAR.format(at) if of == "Epoch" else BATCHES.format(of, at, "" if loss is None else f", loss={loss}")
        for of, at, loss in drawn
    ]
    return [(step, loss) for step, values in read(*lines) for loss in values.values()]


def test_the_bar_of_the_batches_below_that_of_the_epochs_is_counted_over_all_epochs() -> None:
    """GPyTorch's examples: no value had a step, and by the pattern that was suggested each epoch replaced the one before."""
    first = [("Epoch", 0, None), ("Minibatch", 0, None), ("Minibatch", 0, 1.9), ("Minibatch", 1, 1.9), ("Minibatch", 1, 1.8)]
    second = [("Epoch", 1, None), ("Minibatch", 0, None), ("Minibatch", 0, 1.5), ("Minibatch", 1, 1.5), ("Minibatch", 5, 1.4)]
    after = [("Epoch", 3, None), ("Minibatch", 0, None), ("Minibatch", 1, 1.3)]  # a later loop
    assert dict(below_epochs([*first, *second, *after])) == {1: 1.9, 2: 1.8, 6: 1.5, 10: 1.4, None: 1.3}
    assert dict(below_epochs([*first, *second[1:]])) == {1: 1.9, 2: 1.8, 6: 1.5, 10: 1.4}  # its move to 1/3 was not drawn
    assert dict(below_epochs([("Epoch", 2, None), *first[1:]])) == {11: 1.9, 12: 1.8}  # resumed: it counts those that are over


def test_only_a_bar_that_begins_again_in_each_epoch_is_counted_over_them() -> None:
    of_all = [("Epoch", 0, None), ("Batch", 1, 1.9), ("Epoch", 1, None), ("Batch", 3, 1.8), ("Epoch", 2, None), ("Batch", 4, 1.7)]
    assert below_epochs(of_all) == [(1, 1.9), (3, 1.8), (4, 1.7)]
    of_others = [("Epoch", 0, None), ("Train batch", 4, 1.9), ("Rehearsal", 1, 0.5), ("Epoch", 1, None), ("Train batch", 1, 1.7)]
    assert below_epochs(of_others) == [(4, 1.9), (None, 0.5), (6, 1.7)]


def test_a_zero_among_the_first_values_costs_none_of_them() -> None:
    """Drawn at 0/3, a zero may not have been measured; at 1/3 it was, and was taken for a change: step 1 was left out."""
    states = [(0, ""), (0, ", accuracy=0, loss=1.9"), (1, ", accuracy=0, loss=1.9"), (1, ", accuracy=0, loss=1.8"), (2, ", accuracy=0, loss=1.8")]
    steps = read(*(f"Epoch 1: 9%|███ | {at}/3 [00:01<00:01, 5.5it/s{shown}]" for at, shown in states))
    assert {step: values["loss"] for step, values in steps} == {1: 1.9, 2: 1.8}


@pytest.mark.parametrize(("rate", "steps"), [
    ("5.53batch/s", [1, 6, 8]), ("45.2img/s", [1, 6, 8]), ("2.10s/step", [1, 6, 8]), ("?it/s", [1, 6, 8]),
    ("1.20MB/s", [0, 1, 1]), ("12.0kiB/s", [0, 1, 1]), ("80.0B/s", [0, 1, 1]),
])  # fmt: skip
def test_a_bar_counts_what_its_unit_says_if_these_are_no_bytes(rate: str, steps: list[int]) -> None:
    """`tqdm(loader, unit="batch")`: all values of an epoch had its number as their step, and only the last ones were kept."""
    lines = [f"Epoch {epoch}:  40%|███ | {at}/5 [00:01<00:01, {rate}, loss={loss}]" for epoch, at, loss in ((0, 1, 0.5), (1, 1, 0.4), (1, 3, 0.3))]
    assert [step for step, _ in read(*lines)] == steps


def test_a_dash_stands_between_a_name_and_its_value_in_a_bar() -> None:
    """segmentation-models-pytorch: nothing of its training was read."""
    bar = "{}: 100%|###| 6/6 [00:08<00:00,  1.38s/it, dice_loss - {}, iou_score - {}]"
    assert read("Epoch: 3", bar.format("train", 0.7323, 0.1675), bar.format("valid", "7.2e-05", 0.0)) == [
        (None, {"dice_loss": 0.7323, "iou_score": 0.1675}), (None, {"valid_dice_loss": 7.2e-05, "valid_iou_score": 0.0}),
    ]  # fmt: skip
    assert read("train: 50%|###| 3/6 [00:08<00:00,  1.38s/it, 3 - 5 left, loss - best, loss of - 3]") == []


def test_a_bar_inside_another_does_not_change_what_the_outer_one_means() -> None:
    """UNet: from the first validation of an epoch on, each value had the step before its own."""
    outer, inner = "Epoch 1/8:  38%|███▊ | {}/90 [00:09<00:17,  6.33img/s{}]", "Validation round:  5%|▌ | {}/20 [00:01<00:32,  1.71s/batch]"
    lines = [outer.format(0, "")]
    for step in range(1, 7):
        lines += [outer.format(step - 1, f", loss={step / 8}"), outer.format(step, f", loss={step / 8}")]
        lines += [inner.format(at) for at in (0, 9, 20)] if step % 2 == 0 else []
    assert dict(read(*lines)) == {step: {"loss": step / 8} for step in range(1, 7)}
