"""Which printed text counts as a step or a metric."""

import math

import pytest

from trainmaster.agent.metrics.counting import EpochCounts
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.agent.transport.point_values import sdk_point


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 12: loss 0.3", (12, {"loss": 0.3})),
        ("step 250: train loss 2.5, val loss 2.75", (250, {"train_loss": 2.5, "val_loss": 2.75})),
        ("iter 40: loss 2.5, time 130.5ms, mfu 1.5%", (40, {"loss": 2.5, "mfu": 1.5})),
        ("epoch 3/20 val_loss=0.1", (3, {"val_loss": 0.1})),
        ("Epoch 1 | step 120 | lr: 3e-4 | loss: -1.5", (120, {"lr": 3e-4, "loss": -1.5})),
        ("[2024-01-01 10:00:00] INFO step=7 acc=3", (7, {"acc": 3.0})),
        ("[2/30] 1 tree, 18 leaves, train loss: 0.5, val loss: 0.75, in 0.028s", (2, {"train_loss": 0.5, "val_loss": 0.75})),
        ("3:\t[0s / 1m:0s],\t\ttrain_loss: 4.5,\tval_loss: 4.75", (3, {"train_loss": 4.5, "val_loss": 4.75})),
        ("59%|##8  | 1175/2000 [00:03<00:01, 5.6it/s, avg. loss [1001-1100]: -165.25]", (None, {"avg_loss": -165.25})),
        ("Epoch [2/10], Step [300/600], Loss: 0.5", (900, {"Loss": 0.5})),  # counted anew in each epoch
        ("global step 9 grad_norm=1e2", (9, {"grad_norm": 100.0})),
        ("loss 0.25 at step 4", (4, {"loss": 0.25})),
        ("step 5 took 0.5 s on rank 3", (5, {})),
        ("epoch 3 best acc 0.9 acc 0.8", (3, {"best_acc": 0.9, "acc": 0.8})),  # the best was the accuracy of now
        ("epoch 3 best acc 0.9", (3, {"best_acc": 0.9})),
        ("step 4 prev val loss 0.9 val loss 0.8 target loss 0.1", (4, {"prev_val_loss": 0.9, "val_loss": 0.8, "target_loss": 0.1})),
        ("step 4, min loss 0.2 max loss 0.9", (4, {"min_loss": 0.2, "max_loss": 0.9})),
        ("best acc 0.9", None),
        ("step 4 loss 0.5 -> 0.4, lr: 1e-3 --> 1e-4 acc: 0.25 → 0.5", (4, {"loss": 0.4, "lr": 1e-4, "acc": 0.5})),
        ("step 4 wait: 5 -> 7 ms, loss -> 0.5", (4, {"loss": 0.5})),
        ("step 4 loss: None acc: 0.5 err: N/A f1: 0.25", (4, {"acc": 0.5, "f1": 0.25})),
        ("step 4 loss 1'234.5 acc 0.5", (4, {"acc": 0.5})),  # not 1
        ("step 4 loss 0.75 | val: loss 0.5 acc 0.25 | test: loss 0.125",  # the validation's loss was that of the training
         (4, {"loss": 0.75, "val_loss": 0.5, "val_acc": 0.25, "test_loss": 0.125})),
        ("step 4 train: loss=0.75 acc=0.5 - val: loss=0.25", (4, {"loss": 0.75, "acc": 0.5, "val_loss": 0.25})),
        ("step: 4, Loss: 0.75 | Val: 0.5, Test: 0.25", (4, {"Loss": 0.75, "Val": 0.5, "Test": 0.25})),
        ("step 4 | Train: 0.75 | Val: 0.5", (4, {"Train": 0.75, "Val": 0.5})),
        ("step 4 loss 0.75 (val: 0.5)", (4, {"loss": 0.75, "val": 0.5})),
        ("step 4 | lr: 0.125 | val | loss: 0.5", (4, {"val_lr": 0.125, "val_loss": 0.5})),
        ("train Loss: 0.75 Acc: 0.5", (None, {"train_Loss": 0.75, "train_Acc": 0.5})),  # both sets had one accuracy
        ("step 4 val loss 0.75 acc 50% lr 0.125", (4, {"val_loss": 0.75, "val_acc": 50.0, "lr": 0.125})),
        ("step 4 train loss 0.75, acc 0.5", (4, {"train_loss": 0.75, "acc": 0.5})),  # of which set is not said
        ("step 4 train_loss 0.75 acc 0.5", (4, {"train_loss": 0.75, "acc": 0.5})),
        ("Val   - loss: 0.75, acc: 0.5", (None, {"val_loss": 0.75, "val_acc": 0.5})),
        ("Epoch 4 - validation - loss=0.75", (4, {"validation_loss": 0.75})),
        ("Epoch 4 (eval) loss=0.75", (4, {"eval_loss": 0.75})),
        ("Epoch 4, phase: val, loss: 0.75", (4, {"val_loss": 0.75})),
        ('{"step": 4, "split": "val", "loss": 0.75}', (4, {"val_loss": 0.75})),
        ('{"step": 4, "phase": "train", "loss": 0.75}', (4, {"loss": 0.75})),
        ("{'step': 4, 'split': 'test', 'loss': 0.75, 'lr': 0.125}", (4, {"test_loss": 0.75, "lr": 0.125})),  # Haiku
        ("Eval step 4: {'loss': 0.75}", (4, {"eval_loss": 0.75})),
        ("epoch 4, val, loss=0.75 acc=0.5", (4, {"val_loss": 0.75, "val_acc": 0.5})),  # learn2learn
        ("step 4 | Train Loss: 0.75 | Val. Loss: 0.5 |  Valid. Acc: 50%",
         (4, {"Train_Loss": 0.75, "Val_Loss": 0.5, "Valid_Acc": 50.0})),
        ("step 4 val. loss 0.5", (4, {"val_loss": 0.5})),
        ("step 4 Train: loss 0.75 Val: loss 0.25, acc 0.125", (4, {"loss": 0.75, "val_loss": 0.25, "val_acc": 0.125})),
        ("step 4 Train(loss=0.75) Test(loss=0.25)", (4, {"loss": 0.75, "test_loss": 0.25})),
        ("step 4 kd loss 0.25 ce loss 0.5 loss 0.75", (4, {"kd_loss": 0.25, "ce_loss": 0.5, "loss": 0.75})),  # it was 0.25
        ("step 4 actor loss 0.75 critic loss 0.5", (4, {"actor_loss": 0.75, "critic_loss": 0.5})),
        ("step 4 cls loss 0.75", (4, {"loss": 0.75})),
        ("mean_reward:200.50 +/- 10.20", (None, {"mean_reward": 200.5})),  # Stable-Baselines3
        ("Reward after training: 0.75", (None, {"Reward_after_training": 0.75})),  # imitation
        ("step 4 D loss: 0.75 G loss: 0.5", (4, {"D_loss": 0.75, "G_loss": 0.5})),  # 0.75 was a size
        ("step 4 acc 0.5 P 0.75 loss 0.25 M", (4, {"acc": 0.5, "P": 0.75, "loss": 0.25})),
        ("step 4 mem 3.2 G acc 0.5 wait 0.25 s", (4, {"acc": 0.5})),
        ("step 6", (6, {})),
        ("epoch 3 iter 19: train loss 2.25. lr 6.0e-04", (19, {"train_loss": 2.25, "lr": 6e-4})),
        ("step 6 ended well. acc 0.5.", (6, {"acc": 0.5})),
        ("Restored all states from the checkpoint at version_0/checkpoints/epoch=15-step=320.ckpt", None),
        ("loading last/epoch=3-step=80-v1.ckpt", None),
        ("process 24328 begins after step 20", None),
        ("going on after step 200 from out/ckpt-200.pt", None),
        ("continue training from step 12", None),
        ("wrote iter100.pt", None),
        ("max_steps=1000", None),
        ("step size 0.1", None),
        ("step 0.1", None),
        ("epochs = 20", None),
        ("Epoch 3: 100%|###| 8/8 [00:00<00:00, 9.1it/s, v_num=1, train_loss=0.3]", (32, {"train_loss": 0.3})),  # Lightning's bar
        ("hello world", None),
        ("saved 12 files", None),
        ('{"step": 3, "train/loss": 0.5, "note": "x", "ok": true}', (3, {"train/loss": 0.5})),
        ('{"epoch": 2, "acc": 1}', (2, {"epoch": 2.0, "acc": 1.0})),
        ('{"lr": 0.1, "layers": 12}', None),
        ('{"step": 3, "loss": ', None),
        ('{"a": {"b": 1}, "step": [1]}', None),
        ("Train Epoch: 6 \tLoss: 2.25 (ε = 2.88, δ = 1e-05)", (6, {"Loss": 2.25, "ε": 2.88, "δ": 1e-05})),  # Opacus
        ("epoch 3 损失: 0.25, 准确率: 0.9", (3, {"损失": 0.25, "准确率": 0.9})),
        ("第 3 轮 loss: 0.3", None),  # 轮_loss is no name
    ],
)
def test_plain_lines(line: str, found: object) -> None:
    assert Parser().parse(line.encode()) == found


def test_not_a_number_is_news() -> None:
    step, values = Parser().parse(b"step 3: loss nan") or (None, {})
    assert (step, list(values), math.isnan(values["loss"])) == (3, ["loss"], True)
    step, values = Parser().parse(b'{"step": 3, "loss": NaN}') or (None, {})
    assert (step, math.isnan(values["loss"])) == (3, True)


def test_epochs_are_no_steps_where_steps_are_named() -> None:
    parser = Parser()
    lines = [b"epoch 1", b"step 500 loss=1.0", b"epoch 2 val_loss=0.5", b"step 600"]
    assert [parser.parse(line) for line in lines] == [(1, {}), (500, {"loss": 1.0}), (None, {"val_loss": 0.5}), (600, {})]


def test_a_checkpoints_name_does_not_turn_epochs_into_steps() -> None:
    """A resumed program names the file that it loads; its curve stood still at that step from then on."""
    parser = Parser()
    lines = [b"Restored all states from the checkpoint at c/epoch=15-step=320.ckpt", b"Epoch 16: 100% loss=0.5", b"Epoch 17: loss=0.25"]
    assert [parser.parse(line) for line in lines] == [None, (16, {"loss": 0.5}), (17, {"loss": 0.25})]


def test_a_pattern_with_a_step_is_not_thrown_back_by_epochs() -> None:
    """Tacotron2: the steps of the pattern grow, so the lines that name an epoch are no steps."""
    parser = Parser(compiled(r"Train loss (?P<step>\d+) (?P<loss>\S+)"))
    lines = [line for n in range(5) for line in (f"Epoch: {n}", f"Train loss {7 * n} 0.{n}", f"Train loss {7 * n + 3} 0.{n}")]
    found = [one for one in (parser.parse(line.encode()) for line in lines) if one is not None]
    assert [step for step, values in found if values] == sorted(7 * n + k for n in range(5) for k in (0, 3))
    assert all(values for _, values in found[-9:])


def test_parlai_counts_its_updates_in_all() -> None:
    line = b"{'exs': 1134, 'loss': 2.5, 'updates': 81, 'total_train_updates': 151}"
    assert Parser().parse(line) == (151, {"exs": 1134.0, "loss": 2.5, "updates": 81.0})


def test_of_a_line_that_the_pattern_matches_only_what_it_finds_counts() -> None:
    pattern = compiled(r"step (?P<step>\d+): loss (?P<loss>[\d.]+|nan)( acc (?P<acc>\S+))?")
    lines = (b"step 3: loss 0.5 acc 0.75 lr=1.0", b"step 4: loss 0.5", b"step 5: loss 0.25.", b"step 9 loss=1.0")
    matched = [(3, {"loss": 0.5, "acc": 0.75}), (4, {"loss": 0.5}), (5, {"loss": 0.25})]  # a stop ends the last sentence
    for automatic, other in ((True, (9, {"loss": 1.0})), (False, None)):
        parser = Parser(pattern, automatic)
        assert [parser.parse(line) for line in lines] == [*matched, other]


def test_steps_of_a_pattern_and_of_other_lines_are_the_same_ones() -> None:
    """nnU-Net: its losses are read without a pattern, its dice only by one. Where the pattern says steps, epochs are none."""
    dice = Parser(compiled(r"Pseudo dice \[(?P<dice>[\d.]+)"))
    lines = [b"Epoch 3", b"train_loss -0.25", b"Pseudo dice [0.75]", b"Epoch 4"]
    assert [dice.parse(line) for line in lines] == [(3, {}), (None, {"train_loss": -0.25}), (None, {"dice": 0.75}), (4, {})]
    rows = Parser(compiled(r"^\[ *(?P<step>\d+), (?P<epe>[\d.]+)\]"))
    lines = [b"Epoch 1", b"[  100, 0.5]", b"Epoch 2 loss 0.75", b"[  200, 0.25]"]
    assert [rows.parse(line) for line in lines] == [(1, {}), (100, {"epe": 0.5}), (None, {"loss": 0.75}), (200, {"epe": 0.25})]
    epochs = Parser(compiled(r"Epoch (?P<step>\d+) dice (?P<dice>[\d.]+)"))
    lines = [b"Epoch 1 loss 0.5", b"Epoch 1 dice 0.25", b"Epoch 2 loss 0.4"]
    assert [epochs.parse(line) for line in lines] == [(1, {"loss": 0.5}), (1, {"dice": 0.25}), (2, {"loss": 0.4})]


def test_rows_below_a_step_that_a_pattern_reads_are_of_it() -> None:
    parser = Parser(compiled(r"\[step=(?P<step>\d+)/"))
    lines = [b"    model/d_model=1.5", b"[step=3/739328,epoch=0]", b"    optim/total_grad_norm=3.25", b"    train/Perplexity=249,403", b"done"]
    read = [parser.parse(line) for line in lines]
    assert read == [None, (3, {}), (None, {"optim/total_grad_norm": 3.25}), (None, {"train/Perplexity": 249403.0}), None]
    bars = Parser(compiled(r"at step (?P<step>\d+)"))
    assert [bars.parse(line) for line in (b"saved at step 3", b"  loss: 0.5")] == [(3, {}), (None, {"loss": 0.5})]


def test_a_step_beyond_all_counting_is_none() -> None:
    """The server takes 64 bits: one such step would have every later request of the agent refused."""
    parser = Parser(compiled(r"t=(?P<step>\S+) loss=(?P<loss>\S+)"))
    found = [parser.parse(line) for line in (b"t=1e30 loss=0.5", b"t=nan loss=0.5", b"t=-inf loss=0.5", b"t=7 loss=0.5")]
    assert found == [(None, {"loss": 0.5})] * 3 + [(7, {"loss": 0.5})]


def test_a_pattern_without_a_step_leaves_the_step_to_the_words() -> None:
    parser = Parser(compiled(r"loss=(?P<loss>\S+)"))
    assert [parser.parse(b"step 3 loss=0.5"), parser.parse(b"epoch 9"), parser.parse(b"loss=x")] == [(3, {"loss": 0.5}), None, (None, {})]


def test_binary_lines_and_long_ones_are_survived() -> None:
    parser = Parser()
    assert parser.parse(b"\xff\xfe step 3: loss 0.5 \x00") == (3, {"loss": 0.5})
    assert parser.parse(b"step 3 " + b"x" * 100_000) == (3, {})


def test_sdk_messages() -> None:
    message = {"t": "m", "step": 3, "values": {"loss": 1, "flag": True, "text": "x", "huge": 10**400}}
    assert sdk_point(message) == (3, {"loss": 1.0})
    assert sdk_point({"t": "m", "step": "3", "values": None}) == (None, {})


def steps_of(lines: list[str], epochs: EpochCounts | None = None) -> list[int | None]:
    parser = Parser(epochs=epochs)
    return [found[0] if (found := parser.parse(line.encode())) is not None else None for line in lines]


POSITIONS = (  # zero-based or not, and a line of 100 batches in an epoch
    (0, "Epoch: [{}][ {}/100]\tTime  0.31 ( 1.10)\tLoss 6.9512e+00 (6.9700e+00)"),
    (1, "Train Epoch: {} [{}/100 (1%)]\tLoss: 2.300039"),
    (1, "| epoch   {} |   {}/  100 batches | lr 20.00 | loss  7.63"),
    (0, "Epoch {}: 10%|#   | {}/100 [00:00<00:00, 9.1it/s, v_num=1, train_loss=0.3]"),
    (0, "Epoch {}/9  ━━━━━━╸━━ {}/100 0:00:09 • 0:00:00 104.31it/s v_num: 1.000 train_loss: 0.125"),
    (1, "Epoch {} Batch {}/100 loss 0.5"),
)


@pytest.mark.parametrize(("first", "line"), POSITIONS)
def test_a_position_in_an_epoch_is_counted_over_all_epochs(first: int, line: str) -> None:
    learned = EpochCounts()
    lines = [line.format(first + epoch, at) for epoch in range(3) for at in (10, 60)]
    assert steps_of(lines, learned) == [10, 60, 110, 160, 210, 260]
    assert steps_of(lines[4:], EpochCounts(learned.first)) == [210, 260]  # of the next attempt
    assert steps_of([line.format(first, 50), line.format(first + 1, 100)]) == [50, 200]  # a bar is not drawn at every batch


def test_a_count_that_begins_anew_without_a_total_goes_on() -> None:
    """CycleGAN: its second epoch replaced the points of the first."""
    line, learned = "(epoch: {}, iters: {}, time: 0.3, data: 0.2) , D_A: 0.3 G_A: 0.5", EpochCounts()
    lines = [line.format(epoch, at) for epoch in (1, 2, 3) for at in (100, 200, 300)]
    assert steps_of(lines, learned) == [100, 200, 300, 400, 500, 600, 700, 800, 900]
    assert steps_of(lines[6:], EpochCounts(learned.first, learned.steps)) == [700, 800, 900]
    from_0 = [line.format(epoch, at) for epoch in (0, 1, 2) for at in (0, 10, 20)]
    assert steps_of(from_0) == [0, 10, 20, 30, 40, 50, 60, 70, 80]
    over_all = [line.format(epoch, at) for epoch, at in ((1, 100), (1, 200), (2, 300), (2, 400), (3, 500))]
    assert steps_of(over_all) == [100, 200, 300, 400, 500]
    once = [line.format(epoch, 100) for epoch in (1, 2, 3)]
    assert steps_of(once) == [100, 200, 300]
    assert steps_of([f"Epoch [{epoch}/10], Step [100/600], Loss: 0.5" for epoch in (1, 2, 3)]) == [100, 700, 1300]
    uneven = [(1, 60), (1, 160), (2, 93), (2, 193), (3, 26), (3, 126)]  # every 100th over all, printed within the epoch
    found = steps_of([line.format(*one) for one in uneven])
    assert found == sorted(set(found))


def test_the_next_attempt_knows_whether_steps_begin_anew_in_each_epoch() -> None:
    """OLMo counts over all epochs, to a total of its own: the first step of its second attempt was read as 739469."""
    line, learned = "[step={}/739328,epoch={}]", EpochCounts()
    assert steps_of([line.format(at, epoch) for at, epoch in ((1, 0), (80, 0), (81, 1), (150, 1))], learned) == [1, 80, 81, 150]
    again = [line.format(141, 1), line.format(142, 1)]
    assert steps_of(again, EpochCounts(learned.first, learned.steps, learned.anew)) == [141, 142]
    within, learned = "Epoch [{}/10], Step [{}/600], Loss: 0.5", EpochCounts()
    assert steps_of([within.format(1, 500), within.format(2, 100)], learned) == [500, 700]
    assert steps_of([within.format(2, 300)], EpochCounts(1, None, learned.anew)) == [900]


def test_a_count_above_its_total_does_not_begin_anew_whatever_was_learned() -> None:
    line, learned = "Epoch [{}/10], Step [{}/600], Loss: 0.5", EpochCounts(1, None, True)
    assert steps_of([line.format(3, 1250), line.format(4, 1900)], learned) == [1250, 1900]
    assert learned.anew is False


def test_a_bar_of_as_many_batches_as_epochs_stays_one_of_batches_after_a_restart() -> None:
    lines = [f"Epoch 2/4:  50%|#####     | {at}/4 [00:01<00:01,  1.0it/s, loss=0.{at}]" for at in (1, 2, 3)]
    assert steps_of(lines, EpochCounts(1, None, True)) == [5, 6, 7]


def test_a_comma_is_a_thousands_one_only_where_it_can_be() -> None:
    lines = (b"step 1", b"    eval/loss=0,523", b"    eval/ppl=1,480")
    parser = Parser()
    read = [parser.parse(line) for line in lines]
    assert read == [(1, {}), None, (None, {"eval/ppl": 1480.0})]


def test_an_object_that_names_an_epoch_ends_the_heading_of_a_validation() -> None:
    parser = Parser()
    lines = (b"step 3 loss: 0.9", b"Running validation...", b"loss: 0.8", b"{'loss': 0.3, 'epoch': 0.5}", b"loss: 0.4")
    assert [found[1] for line in lines if (found := parser.parse(line)) is not None] == [
        {"loss": 0.9}, {"val_loss": 0.8}, {"loss": 0.3, "epoch": 0.5}, {"loss": 0.4},
    ]  # fmt: skip


def test_an_object_below_the_name_of_a_set_is_of_it() -> None:
    """ParlAI: the report of the validation replaced the values of the training."""
    report = b'{"loss": 0.5, "ppl": 2.5, "total_train_updates": 20}'
    lines = (report, b"12:00:01 REPORT   | valid:", report, b"12:00:02 REPORT   | test:", b"12:00:02 INFO | x", report)
    parser = Parser()
    assert [found for line in lines if (found := parser.parse(line)) is not None] == [
        (20, {"loss": 0.5, "ppl": 2.5}), (20, {"val_loss": 0.5, "val_ppl": 2.5}), (20, {"loss": 0.5, "ppl": 2.5}),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["valid", "validation", "eval", "test"])
def test_an_object_right_below_the_name_of_a_set_is_of_it_whatever_the_name(name: str) -> None:
    """`test:` and `validation:` have words by which lines are chosen for reading, so nothing saw that they name a set."""
    parser, word = Parser(), {"valid": "val", "validation": "val"}.get(name, name)
    lines = (f"12:00:01 REPORT   | {name}:".encode(), b'{"loss": 0.5, "total_train_updates": 20}')
    assert [parser.parse(line) for line in lines] == [None, (20, {f"{word}_loss": 0.5})]


@pytest.mark.parametrize(
    ("line", "name"),
    [("Resuming training...", "loss"), ("Back to training", "loss"), ("Validation complete.", "val_loss")],
)
def test_a_training_that_goes_on_ends_a_validation(line: str, name: str) -> None:
    """The training's loss was recorded as the validation's until a line named a step. Results may follow the validation's end."""
    parser = Parser()
    lines = ("step 9 loss: 0.9", "Validating...", "loss: 0.8", line, "loss: 0.4")
    read = [parser.parse(line.encode()) for line in lines]
    assert [found[1] for found in read if found is not None] == [{"loss": 0.9}, {"val_loss": 0.8}, {name: 0.4}]


def test_a_count_that_goes_on_from_the_given_checkpoint_is_over_all_epochs() -> None:
    """Its first attempt was killed right after the first epoch: no line has shown how it counts."""
    line = "[step={}/739328,epoch={}]"
    for given, first in ((80, 81), (80, 90)):
        steps = [first, first + 1]
        assert steps_of([line.format(step, 1) for step in steps], EpochCounts(0, given=given)) == steps
    for given, at in ((1, 1), (1, 2), (600, 1), (600, 10), (750, 151)):  # numbered by epochs, or by all steps
        assert steps_of([f"Epoch 1, Step [{at}/600], Loss: 0.5"], EpochCounts(0, given=given)) == [600 + at]


def test_an_epochs_own_line_belongs_to_its_last_batch() -> None:
    lines = ["| epoch   1 |   200/  300 batches | loss  7.63", "| end of epoch   1 | time: 30.12s | valid loss  5.51"]
    assert steps_of(lines) == [200, None]


def test_the_position_in_a_validation_is_no_step() -> None:
    """MMDetection: its validation of 625 batches after 60 steps was step 625."""
    line = "2023/01/01 11:00:00 - mmengine - INFO - Epoch({}) [1][{}]    {}: 0.5"
    lines = [line.format("train", " 50/60", "loss"), line.format("val", " 50/625", "time"), line.format("val", "625/625", "coco/mAP")]
    parser = Parser()
    assert [parser.parse(one.encode()) for one in lines] == [
        (50, {"loss": 0.5}), (None, {"val_time": 0.5}), (None, {"val_coco/mAP": 0.5}),
    ]  # fmt: skip


def test_transformers_5_writes_whole_epochs_without_a_point() -> None:
    parser = Parser()
    bar = "{:3d}%|#####     | {}/200 [00:01<00:01,  5.00it/s]"
    lines = [bar.format(40, 80), "{'loss': '0.5', 'epoch': '0.8'}", bar.format(40, 80), bar.format(50, 100),
             "{'loss': '0.4', 'epoch': '1'}", bar.format(50, 100)]  # fmt: skip
    found = [one for line in lines if (one := parser.parse(line.encode())) is not None and one[1]]
    assert [(step, values["loss"]) for step, values in [*found, *filter(None, [parser.rest()])]] == [(80, 0.5), (100, 0.4)]


def read(*lines: str) -> list[tuple[int | None, dict[str, float]]]:
    parser = Parser()
    return [found for line in lines if (found := parser.parse(line.encode())) is not None and found[1]]


def test_rows_with_a_blank_column_are_read_by_their_place() -> None:
    """skorch marks the rows that it saves; of the others nothing was read, so every run seemed to end at its best."""
    lines = [
        "  epoch    train_loss    valid_loss    cp     dur",
        "-------  ------------  ------------  ----  ------",
        "      1        0.4380        0.2251     +  1.2346",
        "      3        0.2075        0.1900        1.2346",
        "      4                      0.2000        1.2346",
        "      5  is where it was saved",
    ]
    assert read(*lines) == [
        (1, {"train_loss": 0.438, "valid_loss": 0.2251, "dur": 1.2346}),
        (3, {"train_loss": 0.2075, "valid_loss": 0.19, "dur": 1.2346}),
        (4, {"valid_loss": 0.2, "dur": 1.2346}),
    ]


def test_a_step_that_stands_still_while_epochs_go_on_is_none() -> None:
    """scikit-learn prints `Iteration 1` at each `partial_fit`: all epochs were one point."""
    lines = [line for epoch in range(5) for line in (f"Iteration 1, loss = {1 - epoch / 10:.1f}", f"EPOCH {epoch}  train {epoch / 10}  test 0.5")]
    assert steps_of(lines) == [1, None, 1, None, 1, 2, None, 3, None, 4]
    assert steps_of([*lines, "Iteration 2, loss = 0.3"])[-1] == 2  # it was a step


def test_rows_below_a_heading_of_an_evaluation_have_its_name() -> None:
    """Coqui's trainer: the loss of the last evaluation batch replaced that of the training step."""
    lines = [" > TRAINING (2026-11-26 08:00:00) ", "   --> TIME: 2026-11-26 08:00:00 -- STEP: 24/57 -- GLOBAL_STEP: 50", "     | > loss: 2.5  (2.75)",
             " > EVALUATION ", "   --> STEP: 9", "     | > loss: 2.25  (2.5)", " > TRAINING (2026-11-26 08:00:09) ",
             "   --> TIME: 2026-11-26 08:00:10 -- STEP: 24/57 -- GLOBAL_STEP: 75", "     | > loss: 2.0  (2.25)"]  # fmt: skip
    assert read(*lines) == [(None, {"loss": 2.5}), (None, {"eval_loss": 2.25}), (None, {"loss": 2.0})]


def test_epochs_that_were_taken_for_steps_are_told_once() -> None:
    parser = Parser()
    told = []
    for line in ("> EPOCH: 3/5", "global step 225: loss 0.5", "> EPOCH: 4/5", "global step 300: loss 0.4"):
        parser.parse(line.encode())
        told.append(parser.recounts())
    assert told == [False, True, False, False]


def test_an_object_over_several_lines_is_no_measurement() -> None:
    """timm prints its epochs at the end, sorted best first: the worst loss was the last one, and the headline."""
    lines = ["epoch 7 loss=1.35", "[", "    {", '        "epoch": 5,', '        "validation": {', '            "loss": 1.3,', '            "top1": 62.5', "        }"]
    assert read(*lines) == [(7, {"loss": 1.35})]


def test_of_an_evaluation_the_mean_over_its_batches_is_read() -> None:
    """timm and ImageNet's example print the last batch's value, and the mean in parentheses."""
    line = "{}: [  48/48]  Time: 0.121 (0.127)  Loss:   1.855 ( 1.820)  Acc@1:  28.125 ( 31.250)"
    assert read(line.format("Test"))[0][1] == {"test_Time": 0.127, "test_Loss": 1.82, "test_Acc@1": 31.25}
    assert read("Test: loss 0.5 (0.25), 12 (3)")[0][1]["test_loss"] == 0.5  # not of a meter


def test_what_is_drawn_before_anything_was_measured_is_no_value() -> None:
    """Seen of DeepSpeech: after a restart its first loss was 0, as at the beginning. A measured 0 at step 0 stays one."""
    lines = (
        b"Epoch 4 | Validation | Elapsed Time: 0:00:00 | Steps: 0 | Loss: 0.000000 | Dataset: dev.csv",
        b"Epoch 4 | Validation | Elapsed Time: 0:00:00 | Steps: 1 | Loss: 0.000000 | Dataset: dev.csv",
        b"Epoch 4 | Elapsed Time: 0:00:00 | Steps: 0 | Loss: 2.300000 | Acc: 0.0",
    )
    read = [(4, {}), (4, {"validation_Loss": 0.0}), (4, {"Loss": 2.3, "Acc": 0.0})]
    assert [Parser().parse(line) for line in lines] == read
