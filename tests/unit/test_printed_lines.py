"""How many of the lines that people's programs print are read rightly, and how many wrongly."""

import math
from typing import Any

import pytest
from printed_corpus import PLACE, Score, blocks, score

from trainmaster.agent.metrics.counting import EpochCounts
from trainmaster.agent.metrics.parse import Parser

FOUND_MIN, WRONG_MAX = 0.97, 0.01  # named in docs/benchmarks.md
READ = sorted(path.name for path in PLACE.glob("read_*.txt"))
NOTHING = sorted(path.name for path in PLACE.glob("nothing_*.txt"))


def test_the_corpus_is_as_large_as_announced() -> None:
    printed = [one for name in READ for block in blocks(PLACE / name) for one in block if one.wanted is not None]
    nothing = [one for name in NOTHING for block in blocks(PLACE / name) for one in block]
    assert (len(printed) >= 150, len({one.style for one in printed}) >= 25, len(nothing) >= 150) == (True, True, True)


def test_nearly_all_lines_are_read_rightly() -> None:
    result = score([*READ, *NOTHING])
    shares = result.found / result.readable, len(result.wrong) / result.lines
    print(f"{shares[0]:.1%} of {result.readable} lines found, {shares[1]:.1%} of {result.lines} read wrongly")
    assert shares[0] >= FOUND_MIN, "\n".join(result.missed)
    assert shares[1] <= WRONG_MAX, "\n".join(result.wrong)


@pytest.mark.parametrize("name", NOTHING)
def test_a_program_that_is_training_prints_such_lines_too(name: str) -> None:
    """A parser that has seen steps reads more; what is no metric stays none."""
    wrong = []
    for block in blocks(PLACE / name):
        parser = Parser()
        for line in (b"epoch 1", b"step 5: loss 0.5", b"epoch,loss,acc"):
            parser.parse(line)
        wrong += [one.text for one in block if parser.parse(one.text.encode()) is not None]
    assert wrong == []


def test_a_wrong_reading_is_counted() -> None:
    """What the shares are worth: a parser that read every number would not pass."""
    result = Score(readable=2, found=1, wrong=["x"], missed=["x"], lines=2)
    assert (result.found / result.readable < FOUND_MIN, len(result.wrong) / result.lines > WRONG_MAX) == (True, True)


def test_transformers_last_dictionary_is_not_lost() -> None:
    parser = Parser()
    lines = [b" 50%|#####     | 5/10 [00:01<00:01,  5.00it/s]", b"{'loss': 0.5, 'epoch': 0.5}"]
    assert [parser.parse(line) for line in lines] == [None, None]
    assert parser.rest() == (5, {"loss": 0.5, "epoch": 0.5})
    assert parser.rest() is None


def test_a_bar_that_counts_epochs_says_the_step() -> None:
    """Seen of PyKEEN: its values were read without a step, and so nothing could be said about its restart."""
    bar = "Training epochs on cpu:   1%|          | {}/2000 [00:33<1:00:14,  1.82s/epoch, loss=1.15, prev_loss=1.16]"
    parser = Parser()
    batches = b"Training batches on cpu:  50%|#####     | 4/8.0 [00:01<00:01,  3.20batch/s]"
    lines = [bar.format(12).encode(), batches, bar.format(13).replace("1.82s/epoch", "1.20epoch/s").encode()]
    assert [parser.parse(line) for line in lines] == [(step, {"loss": 1.15, "prev_loss": 1.16}) if step else None for step in (12, 0, 13)]


def test_a_bar_whose_description_counts_as_it_does_counts_epochs() -> None:
    """scvi-tools: epoch 2 was read as step 25, as if it were the first of 12 batches. An epoch may have as many batches as there are."""
    bar = "Epoch {}/{}:   8%|8         | {}/{} [00:00<00:06,  1.60it/s, v_num=1, train_loss_step=1.4e+3, train_loss_epoch={}]"
    printed = [(1, 1), (2, 1), (2, 2), (3, 2), (11, 11), (12, 11), (12, 12)]
    counts = EpochCounts()
    found = Parser(epochs=counts)
    read = [found.parse(bar.format(epoch, 12, at, 12, at / 2).encode()) for epoch, at in printed]
    assert read == [(at, {"train_loss_step": 1400.0, "train_loss_epoch": at / 2}) for _, at in printed]
    assert counts.first != 0
    assert Parser().parse(b"Epoch 3/5:  40%|####      | 2/5 [00:01<00:03,  1.00s/it]") == (2, {})
    within, parser = "Epoch {}/4:  25%|##5       | {}/4 [00:01<00:03,  1.00it/s, loss={}]", Parser()
    steps = [parser.parse(within.format(1 + n // 4, 1 + n % 4, 9 - n).encode()) for n in range(8)]
    assert steps == [(n + 1, {"loss": 9.0 - n}) for n in range(8)]


def test_a_bar_beside_named_steps_says_the_steps_between() -> None:
    """Of a resumed program, the bar begins at 0. A bar that counts something else says no step."""
    bar, named = "Training progress:   1%|          | {}/9000 [00:33<1:00:14,  40.1it/s, Loss=0.5]", "[ITER {}] Saving"
    cases: list[tuple[list[int], list[int | None]]] = [  # the bar's position, or below 0 a step that is named; what is read
        ([390, -400, 410, 420], [None, 400, 410, 420]),
        ([390, -7400, 400, 990, -8000, 1000], [None, 7400, None, None, 8000, 8010]),
        ([90, -100, 100, 10, 90, -200, 100], [None, 100, 100, None, None, 200, None]),  # it begins anew in each epoch
        ([1, -10, 2, 10, -100, 11], [None, 10, None, None, 100, None]),  # it counts tens
        ([40, -400, 41, 80, -800, 81, 120, -1200, 121], [None, 400, None, None, 800, None, None, 1200, None]),
    ]  # fmt: skip
    for printed, read in cases:
        parser = Parser()
        found = [parser.parse((named.format(-at) if at < 0 else bar.format(at)).encode()) for at in printed]
        assert [one[0] for one in found if one is not None] == read, printed


def test_steps_of_an_epoch_are_counted_over_all() -> None:
    """`Epoch [2/10], Step [100/600]` is step 700; a program that counts over all epochs itself stays as it is."""
    anew = [Parser(), [b"Epoch [1/3], Step [600/600]", b"Epoch [2/3], Step [100/600]", b"Epoch [3/3], Step [600/600]"]]
    over = [Parser(), [b"Epoch 1/3, step 600/1800", b"Epoch 2/3, step 700/1800", b"Epoch 3/3, step 1800/1800"]]
    from_zero = [Parser(), [b"epoch 0 step 5/10", b"epoch 1 step 5/10", b"epoch 2 step 5/10"]]
    resumed = [Parser(), [b"Epoch [5/10], Step [100/600]", b"Epoch [5/10], Step [200/600]"]]
    read = [[found[0] for line in lines if (found := parser.parse(line))] for parser, lines in (anew, over, from_zero, resumed)]
    assert read == [[600, 700, 1800], [600, 700, 1800], [5, 15, 25], [2500, 2600]]


def test_the_bar_of_a_training_says_its_steps_between_dictionaries() -> None:
    parser = Parser()
    bars = [b" 50%%|#####     | %d/10 [00:01<00:01,  5.00it/s]" % step for step in (4, 5, 6)]
    lines = [bars[0], b"{'loss': 0.5, 'epoch': 0.5}", *bars[1:], b" 10%|#         | 3/30 [00:00<00:00, 55.12it/s]"]
    assert [parser.parse(line) for line in lines] == [None, None, (5, {"loss": 0.5, "epoch": 0.5}), (6, {}), None]


def test_a_download_is_not_the_bar_of_a_training() -> None:
    parser = Parser()
    lines = [b"100%|##########| 9912422/9912422 [00:00<00:00, 55102312.12it/s]", b"{'loss': 0.5, 'epoch': 0.5}"]
    assert [parser.parse(line) for line in lines] == [None, (None, {"loss": 0.5, "epoch": 0.5})]


def test_a_line_of_names_and_numbers_is_no_header_of_a_table() -> None:
    parser = Parser()
    lines = [b"Epoch 00010 | Loss 0.5 | Accuracy 0.75", b"Epoch 00020 | Loss 0.25 | Accuracy 0.875"]
    assert [parser.parse(line) for line in lines] == [(10, {"Loss": 0.5, "Accuracy": 0.75}), (20, {"Loss": 0.25, "Accuracy": 0.875})]


def test_a_date_without_a_year_takes_nothing_of_the_line() -> None:
    lines = [b"12-31 10:00:00 INFO step 5: loss 0.5", b"[12/31 10:00:00 d2.utils.events]: iter: 6  total_loss: 0.25"]
    assert [Parser().parse(line) for line in lines] == [(5, {"loss": 0.5}), (6, {"total_loss": 0.25})]


def test_of_two_counters_the_step_stays_the_same_one() -> None:
    """LitGPT counts micro-batches as `iter`. A line that names only them has a value, and no step of its own."""
    parser = Parser()
    lines = [b"iter 1760 | step 220: loss 1.5", b"iter 1765: val loss 1.75", b"iter 1770 | step 221: loss 1.25"]
    assert [parser.parse(line) for line in lines] == [(220, {"loss": 1.5}), (None, {"val_loss": 1.75}), (221, {"loss": 1.25})]


def test_the_number_of_all_steps_is_not_the_step() -> None:
    told = [
        Parser().parse(b'{"current_steps": 3, "total_steps": 50, "loss": 0.5}'),
        Parser().parse(b"Epoch: 2, Steps: 263 | Train Loss: 0.5 Vali Loss: 0.25"),
        Parser().parse(b"step 3, max_steps: 50, loss: 0.5"),
        Parser().parse(b"total_steps: 100000"),
    ]
    assert told == [(3, {"loss": 0.5}), (2, {"Train_Loss": 0.5, "Vali_Loss": 0.25}), (3, {"loss": 0.5}), None]


def test_rows_below_a_step_belong_to_it_until_other_text() -> None:
    parser = Parser()
    lines = [b"[batch=1/4800]:", b"   grad_norm: 0.5", b"   throughput/tokens=1,024", b"   eta: 0:01:02", b"done with it", b"   grad_norm: 0.5"]
    assert [parser.parse(line) for line in lines] == [(1, {}), (None, {"grad_norm": 0.5}), (None, {"throughput/tokens": 1024}), None, None, None]


def test_batches_are_steps_only_of_a_program_that_names_no_epoch() -> None:
    parser = Parser()
    lines = [b"batch 100: loss 0.5", b"Epoch 1 batch 5: loss 0.25", b"batch 10: loss 0.125"]
    assert [parser.parse(line) for line in lines] == [(100, {"loss": 0.5}), (1, {"loss": 0.25}), (None, {"loss": 0.125})]


def test_a_line_printed_beside_a_bar_is_read() -> None:
    bar = " 23%|██▎       | 650/2771 [01:23<04:25,  7.98it/s]"
    assert Parser().parse(f"Iteration: {bar}step 651: loss 0.5".encode()) == (651, {"loss": 0.5})
    assert Parser().parse(b"Epoch 0:   1%|          | 795/77225 [9:07<87:01, 4.36s/it, loss=3.5, global_step=794.0]") == (794, {"loss": 3.5})


def test_counters_in_the_texts_of_an_object_are_counted_over_epochs() -> None:
    parser = Parser()
    lines = [b'stats: {"epoch": "%d/3", "iter": "%d/10", "lr": 0.5, "eta": "0:01:02"}' % at for at in ((1, 10), (2, 1), (3, 10))]
    assert [parser.parse(line) for line in lines] == [(10, {"lr": 0.5}), (11, {"lr": 0.5}), (30, {"lr": 0.5})]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("step 5 loss tensor(0.5, grad_fn=<NllLossBackward0>)", (5, {"loss": 0.5})),
        ("step 5: loss tensor(nan)", (5, {"loss": math.nan})),
        ("step 5 loss: tf.Tensor(0.5, shape=(), dtype=float32)", (5, {"loss": 0.5})),
        ("step 5: loss None", (5, {})),
        ("epoch: 5, batch: 100, loss: 0.5", (5, {"loss": 0.5})),
        ("==> Validation: Loss 0.5 Top-1 78.25", (None, {"validation_Loss": 0.5, "validation_Top-1": 78.25})),
        ("\x1b]0;training\x07step 5 loss 0.5", (5, {"loss": 0.5})),
        ("step 5\uff1aloss\uff1a0.5\uff0cacc\uff1a0.75", (5, {"loss": 0.5, "acc": 0.75})),
        ("step 5 loss\u00a0\u22120.5", (5, {"loss": -0.5})),
        ("step 5 loss: 1.5 x 10^-3, acc: 0.5", (5, {"acc": 0.5})),
        ("step 5 loss: 1.5 \u00b7 10\u207b\u00b3", (5, {})),
        ("step 5 loss: 1\u202f234.5", (5, {})),
        ("step 5 loss: -0,523", (5, {})),
        ("step 5 accuracy: 6 of 8", (5, {"accuracy": 0.75})),
        ("Accuracy: 6 out of 8", (None, {"Accuracy": 0.75})),
    ],
)
def test_lines_that_hid_their_step_or_values(line: str, read: tuple[int | None, dict[str, float]]) -> None:
    assert str(Parser().parse(line.encode())) == str(read)


def test_a_table_that_is_drawn_again_says_nothing_new() -> None:
    """Seen of nerfstudio: its last rows stand below each new one again, and steps were said to have fallen back."""
    head = b"Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec"
    rows = [
        b"90 (9.00%)          40.643 ms            36 s, 578.679 ms",  # which column is blank is not known
        b"100 (10.00%)        36.081 ms            32 s, 112.408 ms     117.66 K",
        b"110 (11.00%)        36.081 ms            967.723 ms           nan",
    ]
    parser = Parser()
    read = [parser.parse(line) for line in (head, rows[0], head, *rows[:2], head, *rows)]
    assert [one for one in read if one is not None] == [(90, {}), (100, {"Train_Rays/Sec": 117660.0}), (110, {})]
    assert Parser().parse(rows[1]) is None


def test_a_table_of_progress_needs_no_header() -> None:
    """nerfstudio prints it in its first ten steps only, so not after a resume: nothing was known of that."""
    rows = (b"810 (90.00%)        33.1 ms   2 s, 979.000 ms  120.00 K", b"820 (91.11%)  33 ms  967 ms  119.00 K", b"899 (99.89%)")
    parser = Parser()
    assert [parser.parse(row) for row in rows] == [None, (820, {}), (899, {})]
    for other in (b"820 (91.11%)  functions", b"820 (12.00%)  33 ms", b"810 (90.00%)  33 ms", b"800 (88.89%)  33 ms"):
        parser = Parser()
        assert [parser.parse(rows[0]), parser.parse(other)] == [None, None]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (  # Kornia: of each, the value of the batch and the mean
            "[2026-11-27 16:56:36,801][train][INFO] - Test: 0/2 LOSSES: 2.37 2.37  TOP1: 12.50 12.50  TOP5: 43.75 43.75",
            {"test_LOSSES": 2.37, "test_TOP1": 12.5, "test_TOP5": 43.75},
        ),
        ("Test: loss: 2.37 2.35  betas: 0.9 0.999  stop1: 0.5 0.5", {"test_loss": 2.37}),  # two numbers of another name: a list
        ("Sampling with temperature: 0.7 0.7  top_p: 0.9 0.9  top_k: 0.5 0.5", None),
    ],
)
def test_top_1_and_top_5_are_accuracies(line: str, values: dict[str, float] | None) -> None:
    """Where two numbers follow, only the name of something measured says that they are no list."""
    found = Parser().parse(line.encode())
    assert (found and found[1]) == values


@pytest.mark.parametrize(
    "line", ["{'epoch': %d, 'iter': %d, 'avg_loss': 8.1, 'loss': 7.9}", '{"mode": "train", "epoch": %d, "iter": %d, "loss": 7.9}']
)
def test_the_iterations_in_an_object_that_begin_again_in_each_epoch(line: str) -> None:
    """BERT-pytorch, and MMDetection's JSON: the points of each epoch replaced those of the one before."""
    parser = Parser()
    read = [parser.parse((line % (epoch, at)).encode()) for epoch in (1, 2, 3) for at in (10, 20, 30)]
    assert [found[0] for found in read if found is not None] == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    evaluated = parser.parse(b'{"mode": "val", "epoch": 3, "iter": 625, "bbox_mAP": 0.5}')
    assert evaluated == (None, {"epoch": 3.0, "val_bbox_mAP": 0.5})
    over_all = Parser()
    read = [over_all.parse((line % (epoch, at)).encode()) for epoch, at in ((1, 10), (1, 20), (2, 30), (2, 40), (3, 50))]
    assert [found[0] for found in read if found is not None] == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("total", [4, 2])
def test_a_second_bar_of_characters_in_an_epoch_is_that_of_an_evaluation(total: int) -> None:
    """pytorch-cifar and all that took its bar: the test's values replaced those of the training, and all were at the epoch."""
    bar = " [===>......]  Step: 62ms | Tot: 1s587ms | Loss: {:.3f} | Acc: 10.750% (138/1280)        \b\b\b\b\b\b {}/{} "
    parser, read = Parser(), list[Any]()
    for epoch in range(2):
        read.append(parser.parse(f"Epoch: {epoch}".encode()))
        read += [parser.parse(bar.format(2 - at / 8, at, 4).encode()) for at in (1, 2, 3, 4)]
        read += [parser.parse(bar.format(3 - at / 8, at, total).encode()) for at in (1, 2)]
    steps = {found[0]: found[1]["Loss"] for found in read if found and "Loss" in found[1]}
    assert steps == {epoch * 4 + at: 2 - at / 8 for epoch in (0, 1) for at in (1, 2, 3, 4)}
    assert [found[1]["eval_Loss"] for found in read if found and "eval_Loss" in found[1]] == [2.875, 2.75] * 2


def test_values_below_a_heading_of_a_word_are_of_its_part() -> None:
    said = [
        ("Epoch 1/10", (1, {})),
        ("Training...", None),
        ("loss: 0.5 acc: 0.7", (None, {"loss": 0.5, "acc": 0.7})),
        ("Validation...", None),
        ("loss: 0.6 acc: 0.65", (None, {"val_loss": 0.6, "val_acc": 0.65})),
        ("Train", None),
        ("loss: 0.4", (None, {"loss": 0.4})),
        ("Evaluating on the test set", None),
        ("loss: 0.6", (None, {"eval_loss": 0.6})),
        ("Epoch 2/10", (2, {})),
        ("Evaluating on training data...", None),
        ("loss: 0.6", (None, {"loss": 0.6})),
        ("Testing:", None),
        ("loss: 0.7", (None, {"test_loss": 0.7})),
        ("On Training Data:", None),  # PyOD
        ("loss: 0.7", (None, {"loss": 0.7})),
        ("On Test Data:", None),
        ("loss: 0.8", (None, {"test_loss": 0.8})),
        ("Training set", None),
        ("loss: 0.7", (None, {"loss": 0.7})),
        ("Test set", None),
        ("loss: 0.8", (None, {"test_loss": 0.8})),
        ("Epoch 3/10", (3, {})),
        ("loss: 0.6", (None, {"loss": 0.6})),
    ]
    parser = Parser()
    assert [parser.parse(line.encode()) for line, _ in said] == [read for _, read in said]
