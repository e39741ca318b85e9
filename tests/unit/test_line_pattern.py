"""The pattern that is suggested for a line which is not read by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.metrics.line_text import plain
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.cli.render.line_pattern import suggested

LINES = {
    "at 480 | nll 1.7306 | took 121.47ms": (480, {"nll": 1.7306}),
    "  0     350         12.35    45.60    0.81": (None, {"value_1": 12.35, "value_2": 45.6, "value_3": 0.81}),  # of which?
    "[2026-01-02 10:11:12] round 7 of 90, reward 3.5 (best 4.25)": (7, {"reward": 3.5, "best": 4.25}),
    "Gen 12 -> fitness=0.25 +- 0.5": (12, {"fitness": 0.25, "value_2": 0.5}),
    "loss 0.5 loss 0.75 at step 3": (3, {"loss": 0.5, "loss_2": 0.75}),
    "2026-01-02 10:11:01,923 - INFO - gen 1 fitness 0.15": (1, {"fitness": 0.15}),  # 923 are milliseconds
    "val_f1: 0.52 epoch: 3": (3, {"val_f1": 0.52}),
    "loss 0.5 min 0.1 max 0.9 in 3.5 min": (None, {"loss": 0.5, "min": 0.1, "max": 0.9}),
    "gen 4 fitness 0.45 per step 1.4": (4, {"fitness": 0.45, "step_2": 1.4}),
    "reward  |  1.0016": (None, {"reward": 1.0016}),  # RLCard: a row of a table
    "fitness@5 0.45 fitness@10 0.5 on GPU 0": (None, {"value_1": 0.45, "value_2": 0.5}),
    "GPU 0 fitness 0.3 of 1.5": (None, {"fitness": 0.3, "of": 1.5}),
    "\x1b[32mfitness\x1b[0m 0.15 gen 3": (3, {"fitness": 0.15}),
    "overall log-likelihood is -2.08846 over 1200 frames": (None, {"likelihood": -2.08846}),
    "gen 1 │ fitness 0.15": (1, {"fitness": 0.15}),
    "Batch  1: best_value (random, qEI) = (1.20, 1.55), time = 3.25.": (1, {"value_1": 1.2, "value_2": 1.55, "time": 3.25}),  # BoTorch
    "gain 0.15 [p5] top1 0.25 on 3": (None, {"gain": 0.15, "top1": 0.25}),  # p9 later
    "step 3 train/CrossEntropyLoss = 0.25": (3, {"train_CrossEntropyLoss": 0.25}),
    "* [epoch] 3   [val] -0.542 [test] -0.25": (3, {"val": -0.542, "test": -0.25}),
    "INFO:x:statistics:[('average_q', 0.15), ('average_loss', 0.5), ('cumulative_steps', 200), ('n_updates', 150)]": (
        None, {"average_q": 0.15, "average_loss": 0.5},  # PFRL
    ),
    "train/step 3 Loss 0.25 loss 0.5": (3, {"Loss": 0.25, "loss_2": 0.5}),
}
NOTHING = ["", "listening on 127.0.0.1:8080", "saved out/model-3.pt", "version 2", "took 3.5 s", "x" * 10_000, "  1.034"]


@pytest.mark.parametrize("line", LINES)
def test_a_suggested_pattern_reads_its_line(line: str) -> None:
    pattern = suggested(plain(line.encode()))  # as `tm metrics try` shows it
    assert pattern is not None
    found = Parser(compiled(pattern)).parse(line.encode())
    assert found == LINES[line], pattern
    changed = line.replace("5", "9")
    assert Parser(compiled(pattern)).parse(changed.encode()) is not None, pattern


def test_a_number_without_a_word_is_a_step_if_it_grows() -> None:
    """DEAP: the generation, and how many were evaluated in it. RAFT: five numbers, and fewer blanks later."""
    deap = ["0\t200\t2.39949\t1.5", "1\t121\t2.1\t1.4", "2\t108\t2.0\t1.3"]
    pattern = suggested(plain(deap[0].encode()), [plain(line.encode()) for line in deap[1:]])
    assert pattern is not None
    assert [Parser(compiled(pattern)).parse(line.encode()) for line in deap] == [
        (0, {"value_1": 2.39949, "value_2": 1.5}), (1, {"value_1": 2.1, "value_2": 1.4}), (2, {"value_1": 2.0, "value_2": 1.3}),
    ]  # fmt: skip
    raft = [f"[{step:6}, 0.0009091]     0.0342,     0.5522,     0.9500,     2.4950, " for step in (20, 40, 100000)]
    pattern = suggested(plain(raft[0].encode()), [plain(raft[1].encode())])
    assert pattern is not None
    read = [Parser(compiled(pattern)).parse(line.encode()) for line in raft]
    assert [(found[0], found[1]["value_5"]) for found in read if found] == [(20, 2.495), (40, 2.495), (100000, 2.495)]


def test_a_mark_before_the_first_name_is_no_part_of_the_pattern() -> None:
    """TabM marks the best of its epochs, and names stand in brackets: only the marked lines were read."""
    best, other = "* [epoch] 3   [val] -0.534", "  [epoch] 4   [val] -0.552"
    pattern = suggested(plain(best.encode()))
    assert pattern is not None
    assert Parser(compiled(pattern)).parse(other.encode()) == (4, {"val": -0.552})


def test_the_only_whole_number_that_grows_is_a_step_wherever_it_stands() -> None:
    """VITS: the last but one of a list. Tacotron 2: between the word and its value."""
    vits = [f"INFO:vctk_base:[{9.5 - step / 1000}, 13.25, 76.6, {step}, 0.0002]" for step in (0, 200, 400)]
    pattern = suggested(vits[0], vits[1:])
    assert pattern is not None
    assert pattern.count("(?P<step>") == 1
    read = [Parser(compiled(pattern), automatic=False).parse(line.encode()) for line in vits]
    assert [(found[0], found[1]["value_1"]) for found in read if found] == [(0, 9.5), (200, 9.3), (400, 9.1)]
    tacotron = [f"Train loss {step} 0.{step} Grad Norm 2.5 0.01s/it" for step in (8, 9, 10)]
    assert suggested(tacotron[0], tacotron[1:]) == (
        r"loss\s+(?P<step>\d+)\s+(?P<value_1>[-+.\deE]+|nan|NaN|inf|Inf)\s+Grad\s+Norm\s+(?P<Norm>[-+.\deE]+|nan|NaN|inf|Inf)"
    )


def test_a_percentage_that_grows_is_no_step() -> None:
    """PyTorch's tutorial of a translation: the time, and what is left of it, the iteration, its percentage, the mean loss."""
    lines = ["0m 12s (- 5m 54s) (100 3%) 2.1476", "0m 20s (- 4m 44s) (200 6%) 1.5298", "1m 31s (- 3m 2s) (1000 33%) 0.1702"]
    pattern = suggested(lines[0], lines[1:])
    assert pattern is not None
    read = [Parser(compiled(pattern), automatic=False).parse(line.encode()) for line in lines]
    assert read == [(100, {"value_1": 2.1476}), (200, {"value_1": 1.5298}), (1000, {"value_1": 0.1702})]
    alone = [f"{percent}% 0.5" for percent in (3, 6, 9)]
    assert "step" not in (suggested(alone[0], alone[1:]) or "step")


@pytest.mark.parametrize(
    "form",
    [
        "fit 0.5 [{}, 7, {}]",  # which of both?
        "fit 0.5 reward {}",  # it is measured
        "fit 0.5 tokens {}",
        "fit 0.5 rank {}",
        "fit 0.5 on gpu {} 0.25",
    ],
)
def test_a_number_that_grows_may_be_no_step(form: str) -> None:
    lines = [form.format(number, number * 2) for number in (1, 2, 3)]
    assert "step" not in (suggested(lines[0], lines[1:]) or "step")


def test_two_lines_do_not_show_that_a_number_grows_all_the_time() -> None:
    for numbers in ((1, 2), (1, 2, 2), (1, 3, 2)):
        lines = [f"fit [0.5, {number}]" for number in numbers]
        assert "step" not in (suggested(lines[0], lines[1:]) or "step")


def test_digits_in_a_name_belong_to_it() -> None:
    """big_vision prints `[10] l2_grads = 0.1`, `[10] l2_params = 9.5`: one pattern read both as one metric."""
    pattern = suggested("[10] l2_grads = 0.1", ["[20] l2_grads = 0.2"])
    assert pattern == r"\[(?P<step>\d+)\]\s+l2_grads\s+=\s*(?P<l2_grads>[-+.\deE]+|nan|NaN|inf|Inf)"
    assert Parser(compiled(pattern), automatic=False).parse(b"[10] l2_params = 9.5") is None


def test_a_value_that_is_not_finite_is_read_too() -> None:
    pattern = suggested("epoch 1 it 20 loss nan acc 0.3")
    assert pattern is not None
    lines = {b"epoch 1 it 20 loss nan acc 0.3": (20, "nan", "0.3"), b"epoch 2 it 40 loss 0.5 acc inf": (40, "0.5", "inf")}
    for line, expected in lines.items():
        found = Parser(compiled(pattern)).parse(line)
        assert found is not None
        assert (found[0], str(found[1]["loss"]), str(found[1]["acc"])) == expected


def test_beside_a_given_pattern_its_names_are_not_used_again() -> None:
    """fastText and AlphaZero print several kinds of lines: one pattern reads them all."""
    given = r"it (?P<step>\d+) wins (?P<wins>[\d.]+)"
    pattern = suggested("it 7 wins at 0.25", (), given)
    assert pattern is not None
    assert pattern.startswith(f"{given}|")
    parser = Parser(compiled(pattern), automatic=False)
    assert parser.parse(b"it 7 wins 0.5") == (7, {"wins": 0.5})
    assert parser.parse(b"it 7 wins at 0.25") == (7, {"at": 0.25})  # of the words


@pytest.mark.parametrize("line", NOTHING)
def test_nothing_is_suggested_for_a_line_without_values(line: str) -> None:
    assert suggested(line) is None


@given(st.text(max_size=200))
def test_whatever_the_line_the_pattern_is_valid(line: str) -> None:
    pattern = suggested(line)
    if pattern is not None:
        found = Parser(compiled(pattern)).parse(line.strip().encode())
        assert found is not None
        assert found[1]


def test_a_suggested_pattern_matches_no_line_that_is_read_already() -> None:
    """nanochat: `bpb` alone would take the values of the training's lines, too."""
    read = ["step 00100 | train bpb: 1.25 | loss: 3.5"]
    assert suggested("Validation bpb: 0.93") == r"bpb:\s*(?P<bpb>[-+.\deE]+|nan|NaN|inf|Inf)"
    assert suggested("Validation bpb: 0.93", read=read) == r"Validation\s+bpb:\s*(?P<bpb>[-+.\deE]+|nan|NaN|inf|Inf)"
    assert suggested("bpb: 0.93", read=read) is None


def test_the_unit_of_a_time_is_not_the_name_of_the_next_number() -> None:
    """Seen of nerfstudio: the rays per second were called `ms`."""
    pattern = suggested("took 24.439 ms  128.04 K", ["took 18.595 ms  127.73 K"])
    assert pattern == r"took\s+\d\S*\s+ms\s+(?P<value_1>[-+.\deE]+|nan|NaN|inf|Inf)"


def test_values_in_the_description_of_a_bar_have_its_position_as_their_step() -> None:
    """denoising-diffusion-pytorch: `bar.set_description(f'loss: {loss:.4f}')`."""
    pattern = suggested("loss: 0.4565:   0%|          | 1/1500 [00:00<23:24,  1.07it/s]")
    assert pattern == r"loss:\s*(?P<loss>[-+.\deE]+|nan|NaN|inf|Inf).*?\|\s*(?P<step>\d+)/\d+ \["
    found = Parser(compiled(pattern)).parse("loss: 0.3678:  42%|████▏     | 126/300 [01:00<01:30,  1.92it/s]".encode())
    assert found == (126, {"loss": 0.3678})


@pytest.mark.parametrize("prefix", ["", "2026-01-02 10:11:12 INFO "])
def test_a_pattern_that_begins_with_a_number_reads_no_line_with_words_before_it(prefix: str) -> None:
    """Of NequIP: rows of batches, and below them those of an epoch, in which the same places have other values."""
    pattern = suggested(f"{prefix}    1     1        0.451       0.0153")
    assert pattern is not None
    search = compiled(pattern).search
    assert search(f"{prefix}    1    12        0.108       0.211") is not None
    assert prefix or search("! Train               1    6.400     0.01         0.253        0.295") is None
    assert search("Wall time: 6.4 0.5 0.5") is None


def test_behind_a_number_that_changes_one_that_grows_is_no_step() -> None:
    """Of NequIP: an epoch, and the batch in it. Of a device and a step, the first does not change."""
    rows = ["0  1  0.957  1.25", "1  5  0.568  1.125", "1  10  0.5  1.0"]
    for lines, named in ((rows, False), ([f"0 {row[1:]}" for row in rows], True)):
        pattern = suggested(lines[0], lines[1:])
        assert pattern is not None
        assert ("?P<step>" in pattern) is named


@pytest.mark.parametrize(
    ("form", "read"),
    [
        ("gen {}/10 quality 0.5", {"quality": 0.5}),
        ("[proc 0][Train]({}/4000) quality: 0.5", {"quality": 0.5}),  # DGL-KE: of the two, the first does not change
        ("stage {}/∞ ━━━ 60/60 0:00:23 quality: 0.5", {"quality": 0.5}),  # kraken
        ("proc 7 after {} quality 0.5", {"quality": 0.5}),
    ],
)
def test_a_number_that_counts_to_another_is_a_step(form: str, read: dict[str, float]) -> None:
    lines = [form.format(number) for number in (1, 2, 3)]
    pattern = suggested(lines[0], lines[1:])
    assert pattern is not None
    assert Parser(compiled(pattern), automatic=False).parse(lines[2].encode()) == (3, read)


def test_a_number_that_stands_still_is_no_step() -> None:
    lines = [f"proc 7 quality 0.{digit}" for digit in (5, 6, 7)]
    assert "step" not in (suggested(lines[0], lines[1:]) or "step")


def test_a_value_alone_is_told_by_what_follows_it() -> None:
    pattern = suggested("0.5\t = quality of all", ["0.25\t = quality of all"])
    assert pattern == r"^\s*(?P<value_1>[-+.\deE]+|nan|NaN|inf|Inf)\s+=\s*quality\s+of\s+all"
    assert suggested("12 0.5 0.25") == r"^\s*\d\S*\s+(?P<value_1>[-+.\deE]+|nan|NaN|inf|Inf)\s+(?P<value_2>[-+.\deE]+|nan|NaN|inf|Inf)"
