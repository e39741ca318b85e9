"""Ranks that may hang: reported after a while in one sentence, and withdrawn when they continue."""

import time
from pathlib import Path

import pytest

from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.supervise import inactivity
from trainmaster.agent.supervise.inactivity import FIRST_S, TOLD_S, Inactivity, _length
from trainmaster.agent.transport.outbox import Outbox

HINT = "tm exec x-1 --stacks shows where it is"


class Ranks:
    """Two ranks whose output, processor time and writes a test decides; `told` looks every half second up to a time."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now_s, self.step, self.works, self.written = path, 0.0, 0, False, 0
        self.gang_step: int | None = None
        monkeypatch.setattr(inactivity, "written_by_processes", lambda pids: self.written)
        self.outbox = Outbox(str(path / "spool.jsonl"), str(path / "points.jsonl"))
        self.progress = Progress(self.outbox)
        self.outputs = [RankOutput(Rank(number, str(path)), Parser(), 1 << 20, self.progress) for number in range(2)]
        self.it = Inactivity("x-1", self.outbox, self.outputs, self.progress, lambda: self.works)

    @property
    def text(self) -> str:
        return str(self.outbox.warned["standstill"]["text"]) if "standstill" in self.outbox.warned else ""

    def told(self, until_s: float) -> str:
        while self.now_s < until_s:
            self.now_s += 0.5
            self.it.look(self.now_s, [1], self.gang_step)
        return self.text

    def train(self, until_s: float, every_s: float = 1.0) -> None:
        """Steps, as its first rank prints them."""
        while self.now_s < until_s:
            self.step += 1
            self.say(f"step {self.step} loss 1.0")
            assert self.told(min(until_s, self.now_s + every_s)) == ""

    def say(self, line: str) -> None:
        with (self.path / "rank0.log").open("a") as file:
            file.write(f"{line}\n")
        self.outputs[0].turn(time.monotonic() + 9.0)

    def use(self, *cpu_s: float) -> None:
        for output, more_s in zip(self.outputs, cpu_s, strict=True):
            output.rank.cpu_s += more_s


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(tmp_path, monkeypatch)


def test_no_step_for_unusually_long_is_told_until_the_next_one(ranks: Ranks) -> None:
    """Issue 14: a rank of a gloo job slept before an all-reduce, and the job looked healthy for ever."""
    ranks.train(400.0)
    ranks.use(0.3, 60.0)
    since = ranks.now_s
    assert ranks.told(since + 58.0) == ""
    text = ranks.told(since + 60.0)
    assert text == f"no step for 60 s (usually every 1 s), and no output; CPU use: rank 0 0 %, rank 1 100 %; {HINT}"
    assert ranks.told(since + 110.0) == text
    ranks.say("[rank 0] still waits")
    text = ranks.told(since + 121.0)
    assert text == f"no step for 2 min (usually every 1 s), but other output; CPU use: rank 0 0 %, rank 1 50 %; {HINT}"
    ranks.step += 1
    ranks.say(f"step {ranks.step}")
    assert ranks.told(ranks.now_s + 1.0) == ""
    ranks.train(ranks.now_s + 100.0)
    assert ranks.told(ranks.now_s + 200.0) == ""  # such pauses it makes: 122 s was one
    assert ranks.told(ranks.now_s + 50.0).startswith("no step for 4 min")
    ranks.it.end()
    assert ranks.text == ""


def test_the_first_minutes_are_left_in_peace_and_a_stall_of_them_is_told_then(ranks: Ranks) -> None:
    ranks.train(30.0, every_s=0.5)
    assert ranks.told(FIRST_S) == ""
    assert ranks.told(FIRST_S + 1.0).startswith("no step for 4 min (usually every 0.5 s)")


def test_while_a_checkpoint_is_written_the_pause_does_not_grow(ranks: Ranks) -> None:
    ranks.train(400.0)
    until = ranks.now_s + 300.0
    while ranks.now_s < until:
        ranks.written += 1 << 20
        assert ranks.told(ranks.now_s + 0.5) == ""
    assert ranks.told(until + 59.0) == ""
    assert ranks.told(until + 60.0).startswith("no step for 6 min")


def test_where_steps_are_usual_nothing_but_a_step_is_waited_for(ranks: Ranks) -> None:
    """There were two sentences for ranks that do nothing, and the other one knew nothing of the job's own pauses."""
    ranks.train(400.0)
    assert ranks.told(ranks.now_s + 500.0) != ""  # an evaluation, the first one
    ranks.train(ranks.now_s + 100.0)
    since = ranks.now_s
    assert ranks.told(since + 2 * 500.0 - 2.0) == ""  # no output and no processor time for far over `TOLD_S`
    assert ranks.told(since + 2 * 500.0 + 2.0).startswith("no step for 16 min (usually every 1 s)")
    told = [report["text"] for report in ranks.outbox.batch()[0] if report["topic"] == "standstill"]
    assert [text for text in told if text and not text.startswith("no step")] == []


def test_output_that_cannot_be_read_says_nothing_of_the_steps(ranks: Ranks) -> None:
    ranks.train(400.0)
    ranks.outputs[1].trouble = "rank 1: its output cannot be read: [Errno 5] Input/output error"
    assert ranks.told(ranks.now_s + 1000.0) == ""
    ranks.outputs[1].trouble = ""
    assert ranks.told(ranks.now_s + 59.0) == ""
    assert ranks.told(ranks.now_s + 2.0).startswith("no step for 17 min")


def test_a_job_that_names_no_steps_is_told_when_nothing_at_all_is_seen_of_it(ranks: Ranks) -> None:
    assert ranks.told(TOLD_S - 1) == ""
    ranks.works = True
    assert ranks.told(TOLD_S + 1) == ""  # an accelerator works; from now on it counts anew
    ranks.works = False
    ranks.use(1.0, 1.0)  # what a loop that tries again takes
    assert ranks.told(2 * TOLD_S - 1) == ""
    text = ranks.told(2 * TOLD_S + 2)
    seen = "no output, no report and hardly any processor time for 5 min"
    waits = "it may wait for another rank, a lock, a pipe or the network"
    assert text == f"{seen}; {waits}; CPU use: rank 0 0 %, rank 1 0 %; {HINT}"
    assert ranks.told(2 * TOLD_S + 10.0) == text
    ranks.say("met")
    assert ranks.told(ranks.now_s + 0.5) == ""
    ranks.use(0.0, 100.0)  # it computes
    since = ranks.now_s
    assert ranks.told(since + 2 * TOLD_S) == ""  # the pause before was nearly as long
    assert ranks.told(since + 4 * TOLD_S) != ""
    ranks.use(0.0, 100.0)
    assert ranks.told(ranks.now_s + 0.5) == ""


def test_a_silent_node_of_a_gang_that_goes_on_is_not_told(ranks: Ranks) -> None:
    """Issue 14: a node whose ranks print nothing and wait for the others' GPUs or data was told to hang while rank 0 trained."""
    for step in range(1, 100):
        ranks.gang_step = step
        assert ranks.told(ranks.now_s + 20.0) == ""
    since = ranks.now_s
    assert ranks.told(since + TOLD_S - 21.0) == ""
    assert ranks.told(since + TOLD_S).startswith("no output, no report and hardly any processor time for 5 min")
    ranks.gang_step = 100
    assert ranks.told(ranks.now_s + 0.5) == ""


def test_of_many_ranks_the_idlest_and_the_busiest_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(tmp_path, monkeypatch)
    ranks.outputs += [RankOutput(Rank(number, str(tmp_path)), Parser(), 1 << 20, ranks.progress) for number in range(2, 6)]
    ranks.train(400.0)
    ranks.use(30.0, 0.0, 30.0, 60.0, 30.0, 30.0)
    assert "; CPU use: 0 % (rank 1) to 100 % (rank 3); " in ranks.told(ranks.now_s + 60.0)


def test_lengths() -> None:
    seconds = (0.0213, 0.5, 1.49, 60.0, 119.9, 120.0, 3600.0, 7200.0, 90_000.0)
    assert [_length(one) for one in seconds] == ["0.021 s", "0.5 s", "1.5 s", "60 s", "119 s", "2 min", "60 min", "2 h", "25 h"]
