"""Output of programs, and patterns of people, are processed in time linear in the length of the text."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from launches import launch

from trainmaster.agent.metrics import parse, patterns
from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import GROUPS_MAX, TEXT_MAX, PatternError, compiled
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.errors import SpecError
from trainmaster.spec.document import from_mapping
from trainmaster.wire.names import METRIC_NAME_MAX

SIZE = 4096  # bytes of a hostile line
LINE_MAX_S = 0.01  # goal 1 ms; a machine under load may take longer. Quadratic takes 0.5 s, cubic hours
WORST_LINE_MAX_S = 0.5  # with the slowest pattern that is taken (35 ms where it was measured)
PUMPS = (" ", "\t", "1", "1.", ".", "a", "a ", "a=", "=", " = ", "-", "a-", "/", "step", "step ", "step:", "train ", "train a ", "1e", "e", "[", "[ ", "a 1 ",
         "a=1", "a=1.", "1 ", "é", "٣", "\0", "global ", "global_", "epoch 1x ",
         "loss 1.0 ", "loss: 1.5, ", "nan ", " = ", "| ", "|a 1.5 |", "1%|", "1%|a|", "{'a': 1, ", "'a", "a(", "a(b)", " - ", "12:00:00 ", "INFO ", "[1]", "\x1b[1m",
         "│", "loss: 1/2 (3%) ", "1,111", "test: ", "━", "epoch 1/2 step 1/2 loss 1.5 ")  # fmt: skip
WORDS = st.sampled_from(
    ["step", "Step", "epoch", "iter", "global step", "global_step", "loss", "train", "val", "acc", "lr", "of", "12", "3.5", "1e-4", "-1.", ".5", "nan",
     "1.2.3", "inf", "Infinity", ".", ".pt", "-v", ":", "=", "#", "[", "]", "/", ",", "|", "%", "(", " ", "  ", "\t", "x", "1", "é", "٣", "loss: ", "100%|", "|", "{'", "'", "}", "[1]", "1:", "\r", "epoch loss acc", "-----", "best"]
)  # fmt: skip


def took_s(parser: Parser, line: bytes) -> float:
    """Processor seconds of this thread, the best of three."""
    best = 1e9
    for _ in range(3):
        began = time.thread_time()
        parser.parse(line)
        best = min(best, time.thread_time() - began)
    return best


def test_no_line_holds_the_parser() -> None:
    """S1: `step` and 2,000 blanks took 439 s; a number of 4,000 digits and a letter half a second."""
    slow = []
    for head in ("step", "step 1 ", "step 1 a=", "epoch [", "train", "step:", "loss: ", "| a |", "{'", "1%|", "[1] ", "1: "):
        for pump in PUMPS:
            for tail in ("", "x", "[", "=", "1x"):
                line = (head + (pump * SIZE)[: SIZE - 80] + tail).encode()
                seconds = took_s(Parser(), line)
                if seconds > LINE_MAX_S:
                    slow.append((head, pump, tail, seconds))
    blanks = b"step" + b" " * 1300
    slow += [("blanks", "", "", took_s(Parser(), blanks + b":" + blanks[4:] + b"[" + blanks[4:]))] if slow else []
    assert took_s(Parser(), blanks + b":" + blanks[4:] + b"[" + blanks[4:]) < LINE_MAX_S
    assert slow == []


def test_a_line_of_json_is_as_quick() -> None:
    """S1: objects, too: deep ones, long names, long numbers."""
    lines = [b'{"a":' * 13000 + b"1" + b"}" * 10, b'{"step": ' + b"9" * 65000 + b"}", b'{"step":1,"' + b"a" * 65000 + b'":1}',
             b'{"step":1,' + b",".join(b'"m%d":1' % n for n in range(6000)) + b"}"]  # fmt: skip
    assert [line[:12] for line in lines if took_s(Parser(), line) > 20 * LINE_MAX_S] == []  # they are sixteen times as long


@given(st.lists(st.lists(WORDS, max_size=14).map("".join), max_size=4))
def test_any_words_in_any_order_are_survived(lines: list[str]) -> None:
    """S1: a parser keeps tables, bars and counters between lines; none of them is too strange for it."""
    parser = Parser()
    for line in lines:
        parser.parse(line.encode())
    parser.rest()


def test_a_number_at_the_cut_of_a_long_line_is_not_read_in_half() -> None:
    line = b"step 3 loss=0.5 " + b"x" * (parse.LINE_MAX - 20) + b" acc=0.125"
    assert Parser().parse(line) == (3, {"loss": 0.5})


REFUSED = {
    "(?P<a>x)(?=y)": "look-ahead",
    "(?P<a>x)(?!y)": "look-ahead",
    "(?<=y)(?P<a>x)": "look-behind",
    "(?<!y)(?P<a>x)": "look-behind",
    r"(?P<a>x)\1": "back-reference",
    "(?P<a>x)(?P=a)": "back-reference",
    "(?>(?P<a>x))": "atomic",
    "(?P<a>x++)": "possessive",
    r"(?P<a>x)\Z": r"\z",
    "(?P<a>": "missing )",
    "(?P<a>" + "x{1000}" * 100 + ")": "too large",
    "(?P<a>.{0,999})": "too large",
    "(?P<a>" + "x" * TEXT_MAX + ")": "characters",
    "(?P<a>" + "(x)" * GROUPS_MAX + ")": "groups",
    "(x)": "no named group",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_cannot_be_linear_is_refused_with_the_reason(pattern: str) -> None:
    """S3: at submit, in words, and within a moment."""
    began = time.thread_time()
    with pytest.raises(SpecError) as refused:
        from_mapping({"command": "true", "metrics": {"pattern": pattern}})
    assert REFUSED[pattern] in refused.value.message + str(refused.value.details)
    assert time.thread_time() - began < 1.0  # 50 ms where it was measured


def test_a_pattern_that_took_seconds_to_compile_is_refused_at_once() -> None:
    """S4: 4 KB of classes blocked the api for 8 to 20 s."""
    began = time.thread_time()
    with pytest.raises(SpecError):
        from_mapping({"command": "true", "metrics": {"pattern": "(?i)(?P<a>x)" + "[a-\U0010ffff]" * 800}})
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize(
    "pattern",
    ["(?P<loss>(a+)+)$", "(?P<loss>(a|a?)+)$", "(?P<loss>(a|a)*b)", r"(?P<a>\s*:?\s*\[?\s*x)", "(?P<x>" + "(.*)" * 31 + "y)", "(?P<x>" + "(.?)" * 31 + ".{0,90}x.{0,90}z)y",
     "(?P<x>" + "((((x*)*)*)*)*" * 6 + "(?:x?){500}y)", "(?P<x>" + "(a*)*" * 31 + "y)"],
)  # fmt: skip
def test_every_pattern_that_is_taken_is_linear(pattern: str) -> None:
    """S3: nested repeats hung the agent of a job for ever."""
    parser = Parser(compiled(pattern))
    for line in (b"a" * (SIZE - 1) + b"!", b"x" * (SIZE - 2) + b"zy", b" " * SIZE):
        assert took_s(parser, line) < WORST_LINE_MAX_S, line[:2]


@given(st.text(max_size=60) | st.lists(st.sampled_from([*"ab(|)*+?{}[]^$.\\d<P=>!#:-1,9", "(?P<x>", "{1,99}", "(?:", "\\pL"]), max_size=30).map("".join))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    """S3: no text brings the compiler to anything else."""
    with contextlib.suppress(PatternError):
        compiled(text).search("ab 12 " * 20)


def reader(tmp_path: Path, pattern: Any, text: bytes) -> tuple[RankOutput, Outbox]:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    (tmp_path / "rank0.log").write_bytes(text)
    parser = pattern if isinstance(pattern, Parser) else Parser(pattern)
    return RankOutput(Rank(0, str(tmp_path)), parser, 1 << 30, Progress(outbox)), outbox


class Slow:
    """The slowest pattern that there could be."""

    groupindex = {"step": 1}  # noqa: RUF012

    def __init__(self) -> None:
        self.searched: list[str] = []

    def search(self, text: str) -> None:
        """Takes its time."""
        self.searched.append(text)
        time.sleep(0.03)  # not waiting: it stands for a search that takes so long


def test_a_slow_pattern_delays_metrics_and_not_the_agent(tmp_path: Path) -> None:
    """S3: a turn ends in time however many lines there are, and every line is searched in the end."""
    pattern = Slow()
    output, outbox = reader(tmp_path, pattern, b"".join(b"line %d\n" % n for n in range(40)))
    turns = []
    while len(pattern.searched) < 40:
        began = time.monotonic()
        output.turn(time.monotonic() + 0.01)
        turns.append(time.monotonic() - began)
    assert pattern.searched == [f"line {n}" for n in range(40)]
    assert len(turns) > 8  # some three lines each, instead of all in one
    assert outbox.warned == {}


def test_a_busy_machine_makes_nothing_unsearched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside two busy processes, a third of 9,000 lines was not read at the end: others had the processor for the second."""

    class Waiting(Parser):
        def parse(self, line: bytes) -> Any:
            time.sleep(0.004)  # others have the processor
            return super().parse(line)

    monkeypatch.setattr("trainmaster.agent.metrics.output._FINISH_S", 0.4)  # a third of what it takes
    lines = b"".join(b"step %d: loss 0.5\n" % step for step in range(1, 301))
    output, outbox = reader(tmp_path, Waiting(), lines)
    output.finish()
    outbox.persist_points({})
    assert (len(outbox.points.take()), outbox.warned) == (300, {})


def test_what_was_not_searched_at_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: the end does not wait for a slow pattern, and the job says so."""
    monkeypatch.setattr("trainmaster.agent.metrics.output._FINISH_S", 0.1)
    output, outbox = reader(tmp_path, Slow(), b"line\n" * 4000)
    output.finish()
    assert "not searched for metrics" in outbox.warned["output"]["text"]


def test_a_node_without_the_engine_says_that_the_pattern_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: never the backtracking `re` instead."""
    monkeypatch.setitem(sys.modules, "re2", None)
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    found = patterns.of_launch(launch(tmp_path, metrics_pattern="(?P<loss>x)"), outbox)
    assert found is None
    assert "install google-re2" in outbox.warned["pattern"]["text"]


def test_a_pattern_of_an_older_version_is_off_with_a_word(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    patterns.of_launch(launch(tmp_path, metrics_pattern="(?P<loss>x)(?=y)"), outbox)
    assert "look-ahead" in outbox.warned["pattern"]["text"]


def test_the_engine_is_found_without_site_packages() -> None:
    """S3: an agent started by exec runs with -I -S; the launch says where RE2 lies."""
    root, place = Path(patterns.__file__).parents[3], Path(re2.__file__).parents[1]
    code = (f"import sys; sys.path.append({os.fspath(root)!r}); from trainmaster.agent.metrics.patterns import compiled; before = list(sys.path); "
            f"print(compiled('(?P<x>a+)', {os.fspath(place)!r}).search('baa').group('x'), before == sys.path)")  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["aa", "True"]


def test_names_that_no_screen_can_show_are_passed_over_with_a_word(tmp_path: Path) -> None:
    """L5: a name of 3,000 letters made `tm compare` 3,000 columns wide; one with escapes could write anywhere on a terminal."""
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    outbox.point(0, 1, {"loss": 0.5, "x" * 3000: 1.0, "red\x1b[31m": 1.0, "": 1.0, "x" * METRIC_NAME_MAX: 2.0})
    outbox.persist_points({})
    assert [values for *_, values in outbox.batch()[1]] == [{"loss": 0.5, "x" * METRIC_NAME_MAX: 2.0}]
    assert "skipped" in outbox.warned["metric names"]["text"]


def test_a_request_of_points_stays_within_what_the_server_reads(tmp_path: Path) -> None:
    """L5: very many values under very long names come in several requests, none of them over 8 MiB, and none is lost."""
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    names = [f"{n:05}" + "\U0001f600" * 240 for n in range(6000)]
    outbox.point(0, 1, dict.fromkeys(names, 1.0))
    outbox.persist_points({})
    seen: list[str] = []
    while not outbox.points.empty:
        points = outbox.batch()[1]
        assert len(json.dumps([values for *_, values in points])) < 8 * 2**20
        seen += [name for *_, values in points for name in values]
        outbox.points.sent()
    assert seen == names


def test_an_sdk_line_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: it was held in memory for ever, and read again with each chunk."""
    monkeypatch.setattr("trainmaster.agent.transport.sdk_file.LINE_MAX", 100_000)
    output, outbox = reader(tmp_path, None, b"")
    with (tmp_path / "rank0.sdk").open("ab") as file:
        file.write(b'{"t": "m", "step": 1, "values": {"loss": 1' + b"1" * 500_000 + b"}}\n" + b'{"t": "m", "step": 2, "values": {"loss": 2}}\n')
    while output.turn(time.monotonic() + 5):
        pass
    outbox.persist_points({})
    assert [(step, values) for *_, step, values in outbox.batch()[1]] == [(2, {"loss": 2.0})]
