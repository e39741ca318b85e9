"""What the store worker passes to the collector: only scans during which every writer lived, steps by file time."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launches import launch, write
from waiting import deadline

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise import storing
from trainmaster.agent.supervise.storing import StoreWorker
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.wire.processes import boot_id, start_ticks


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits that law needs, shorter: the rules are the same."""
    monkeypatch.setattr(observations, "QUIET_S", 0.02)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)
    monkeypatch.setattr(storing, "_SCAN_S", 0.03)


def begun(root: Path, pid: int, pattern: str, **orders: Any) -> tuple[StoreWorker, Progress]:
    """A store worker whose only rank here is the process `pid`."""
    start = Startup(str(root), launch(root, checkpoint_path=pattern, **orders), Wake())
    rank = Rank(0, str(root))
    rank.pid, rank.running = pid, True
    start.ranks = [rank]
    start.prepared.collector = Collector(start.launch)
    progress = Progress(Outbox(str(root / "spool.jsonl"), str(root / "points.jsonl")))
    return StoreWorker(start, progress), progress


def looks(it: StoreWorker, count: int) -> None:
    """Let it look `count` times."""
    for _ in range(count):
        look(it, it._next_scan_s)


def look(it: StoreWorker, due_s: float) -> None:
    """Let it look once, when it is due."""
    deadline(lambda: it.watch(time.monotonic()) or not it.idle or it._next_scan_s != due_s, "a look to begin", every_s=0.002)
    deadline(lambda: it.idle, "a look to end", every_s=0.002)


def test_no_look_counts_once_a_rank_is_dead(tmp_path: Path) -> None:
    """A file without a format, half written by a rank that was killed: closed only because its writer is dead."""
    writer = subprocess.Popen(["sleep", "60"])
    it, _ = begun(tmp_path, writer.pid, "model_*.txt")
    looks(it, 1)
    write(tmp_path / "work" / "model_40.txt", "only half of i")
    looks(it, 1)
    writer.kill()
    os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped yet
    looks(it, 3)
    assert list(it.results) == []
    it.finish(well=False)
    deadline(lambda: it.idle, "the last look")
    assert [(kind, fields.get("topic")) for kind, fields in it.results] == [("warned", "checkpoint")]
    writer.wait()


@pytest.mark.parametrize("then", ["killed", "closed", "killed, and saved again"])
def test_what_a_process_below_a_rank_had_open_when_it_ended_may_be_cut_short(tmp_path: Path, then: str) -> None:
    """A saver that ran out of memory, or a program that a shell line starts again: its rank lives on."""
    it, _ = begun(tmp_path, os.getpid(), "model_*.txt")
    it._scans._collector.prime()  # type: ignore[union-attr]
    path = tmp_path / "work" / "model_40.txt"
    path.parent.mkdir()
    script = "exec 3>$0; echo half >&3; echo open; read go; exec 3>&-; echo closed; read go"
    argv = ["sh", "-c", script, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as saver:
        assert saver.stdin is not None
        assert saver.stdout is not None
        assert saver.stdout.readline() == "open\n"
        looks(it, 2)
        if then == "closed":
            print(file=saver.stdin, flush=True)
            assert saver.stdout.readline() == "closed\n"
            looks(it, 1)
        saver.kill()
    looks(it, 3)
    if "again" in then:
        assert list(it.results) == []
        path.write_text("a whole one")
    looks(it, 3)
    assert [kind for kind, _ in it.results] == ([] if then == "killed" else ["staged"])
    it.finish(well=False)
    deadline(lambda: it.idle, "the last look")
    texts = [fields["text"] for kind, fields in it.results if kind == "warned" and fields["topic"] == "checkpoint"]
    told = (
        "checkpoint model_40.txt is not in the store: what wrote it ended before it was seen closed; write it under another name "
        "and rename it when it is done; a restart begins from the beginning"
    )
    assert texts == ([told] if then == "killed" else [])


def test_what_another_node_writes_into_its_own_directory_is_told(tmp_path: Path) -> None:
    """Shards of node 1 were missing in each checkpoint of a gang without a shared directory, without any message."""
    write(tmp_path / "work" / "model_1.txt", "put back")
    start = Startup(str(tmp_path), launch(tmp_path, nodes=2, node_index=1, checkpoint_path="model_*.txt"), Wake())
    start.prepared.collector = Collector(start.launch)
    start.prepared.collector.prime()
    it = StoreWorker(start, Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))))
    it.finish()
    deadline(lambda: it.idle, "a look")
    assert list(it.results) == []
    write(tmp_path / "work" / "model_2.txt", "of node 1")
    for _ in range(2):
        it.finish()
        deadline(lambda: it.idle, "a look")
    ((kind, told),) = it.results
    assert (kind, told["topic"]) == ("warned", "checkpoints of n1")
    assert told["text"].startswith("its ranks wrote model_2.txt into the work directory of node 1 alone; only what node 0 has is kept")


AGENT = """
import os, subprocess, sys
if os.fork():
    os._exit(0)  # an orphan, as agents are
script = "exec 3>>$0; echo open; read go; exec 3>&-; echo closed; read go"
rank = subprocess.Popen(["sh", "-c", script, sys.argv[1]], stdout=subprocess.PIPE, text=True)
rank.stdout.readline()
print(os.getpid(), rank.pid, flush=True)
print(rank.stdout.readline(), end="", flush=True)
rank.wait()
"""


def test_what_a_rank_of_another_agent_has_open_is_not_whole(tmp_path: Path) -> None:
    """R2: node 0 asked only its own ranks, and committed what one of node 1 had half written."""
    root = tmp_path / "n0"
    path = write(root / "work" / "ck_1.txt", "half")
    it, _ = begun(root, os.getpid(), "ck_*", nodes=2, in_place=True)
    argv = [sys.executable, "-c", AGENT, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        agent, rank = map(int, other.stdout.readline().split())
        identity = {"pid": agent, "start_ticks": start_ticks(agent), "boot_id": boot_id()}
        write(tmp_path / "n1" / "agent.json", json.dumps(identity))
        write(tmp_path / "n1" / "ranks.pids", f"{rank} {start_ticks(rank)}\n")
        looks(it, 4)
        assert list(it.results) == []
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "closed\n"
        looks(it, 3)
        assert [kind for kind, _ in it.results] == ["staged"]


def test_looks_go_on_when_a_rank_of_several_is_done(tmp_path: Path) -> None:
    """One that exited 0 by itself has closed what it wrote; one that failed or was stopped may have left half a file."""
    for code, stopped, counts in ((0, False, True), (1, False, False), (0, True, False)):
        root = tmp_path / f"{code}{stopped}"
        it, _ = begun(root, os.getpid(), "model_*.txt")
        done = Rank(1, str(root))
        done.exit_code, done.stopped_by_us = code, stopped
        it._scans._start.ranks.append(done)
        write(root / "work" / "model_40.txt", "no format")
        if counts:
            looks(it, 3)
            assert [(kind, fields["step"]) for kind, fields in it.results] == [("staged", 40)]
        else:
            it.watch(it._next_scan_s)
            assert it.idle
            assert list(it.results) == []


def test_a_checkpoint_that_names_no_step_gets_the_one_printed_before_it_was_written(tmp_path: Path) -> None:
    it, progress = begun(tmp_path, os.getpid(), "ckpt.json")
    output = RankOutput(Rank(0, str(tmp_path)), Parser(), 1 << 30, progress)
    log = tmp_path / "rank0.log"
    for step, written_s in ((10, 1_000_000_000.0), (20, 1_000_000_001.0), (30, 1_000_000_002.0)):
        with log.open("a") as file:
            file.write(f"step {step} loss 0.5\n")
        os.utime(log, (written_s, written_s))
        output.turn(time.monotonic() + 10)
    checkpoint = write(tmp_path / "work" / "ckpt.json", '{"w": 1}')
    os.utime(checkpoint, (1_000_000_001.5, 1_000_000_001.5))
    looks(it, 1)
    deadline(lambda: bool(it.results), "the checkpoint")
    assert [(kind, fields["step"], fields["approximate"]) for kind, fields in it.results] == [("staged", 20, True)]
    assert (progress.last_step, progress.step_at(999_999_999.0), progress.step_at(2e9)) == (30, None, 30)


def test_a_checkpoint_before_the_first_step_says_when_it_was_saved(tmp_path: Path) -> None:
    it, _ = begun(tmp_path, os.getpid(), "ckpt.json")
    checkpoint = write(tmp_path / "work" / "ckpt.json", '{"w": 1}')
    os.utime(checkpoint, (it._scans.began_s + 5.0, it._scans.began_s + 5.0))
    looks(it, 1)
    deadline(lambda: bool(it.results), "the checkpoint")
    ((kind, fields),) = it.results
    assert (kind, fields["step"], fields["after_s"], "saved_s" in fields) == ("staged", None, 5.0, False)


@pytest.mark.parametrize(("saved_s", "moved_s"), [(-5.0, 0.0), (5.0, -3600.0), (5.0, 3600.0)])
def test_when_a_checkpoint_was_saved_is_not_told_if_nobody_knows_it(tmp_path: Path, saved_s: float, moved_s: float) -> None:
    """One of an earlier attempt was "saved less than 0.1 s after" this one began; a clock set forward added an hour."""
    it, _ = begun(tmp_path, os.getpid(), "ckpt.json")
    it._scans.began_s -= moved_s
    checkpoint = write(tmp_path / "work" / "ckpt.json", '{"w": 1}')
    os.utime(checkpoint, (it._scans.began_s + saved_s, it._scans.began_s + saved_s))
    looks(it, 1)
    deadline(lambda: bool(it.results), "the checkpoint")
    ((kind, fields),) = it.results
    assert (kind, fields["step"], "after_s" in fields, "saved_s" in fields) == ("staged", None, False, False)


def test_steps_are_remembered_by_time(tmp_path: Path) -> None:
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    for number in range(10_000):
        progress.written_s = 100.0 + number
        progress.printed(0, number, {})
    assert (progress.step_at(100.0 + 9_000), progress.step_at(100.0 + 9_999.5), progress.step_at(1e9)) == (9_000, 9_999, 9_999)
    assert progress.step_at(101.0) is None  # too long ago
    progress.written_s -= 1.0  # another rank's log, written a little earlier
    progress.printed(1, 9_998, {})
    assert progress.step_at(1e9) == 9_999
    progress.written_s = 50.0  # the clock was set back
    progress.printed(0, 10_000, {})
    assert (progress.step_at(49.0), progress.step_at(51.0)) == (None, 10_000)


def test_steps_told_outrank_printed_ones(tmp_path: Path) -> None:
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    progress.written_s = 10.0
    progress.printed(0, 500, {})
    progress.written_s = 11.0
    progress.reported(0, 3, {})
    progress.printed(0, 600, {})
    assert (progress.first_step, progress.last_step, progress.step_at(10.5), progress.step_at(12.0)) == (3, 3, None, 3)


def test_a_note_stays_until_its_report_is_on_the_disk_or_acknowledged(tmp_path: Path) -> None:
    """On a full disk, the report of a checkpoint was in memory alone, and the note of its files was removed."""
    it, progress = begun(tmp_path, os.getpid(), "out/ck-*")
    outbox = progress._outbox
    collector = it._scans._collector
    assert collector is not None
    write(tmp_path / "work" / "out" / "ck-20", "twenty")
    (candidate,) = collector.matches.candidates()
    collector.unstored.refused(candidate, 20, OSError(28, "No space left on device"))
    looks(it, 3)
    note, spool = tmp_path / "work.unstored.json", tmp_path / "spool.jsonl"
    (fields,) = [fields for kind, fields in it.results if kind == "staged"]
    spool.mkdir()  # nothing can be written there
    it.reported("staged", outbox.reports("staged", [fields]))
    it.settle(lambda: outbox.durable)
    assert (outbox.durable, note.exists()) == (0, True)
    spool.rmdir()
    outbox.spool()
    it.settle(lambda: outbox.durable)
    assert (outbox.durable, note.exists()) == (1, False)


def test_a_look_that_fails_is_not_the_last(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever a file makes of the code that reads it, the next one is looked at; and it is said once."""
    it, _ = begun(tmp_path, os.getpid(), "model_*.json")
    scan, tried = Collector.scan, []

    class Stumbling(Collector):
        def scan(self, *looked: Any) -> Any:
            tried.append(1)
            if len(tried) < 3:
                raise OverflowError("Python int too large to convert to C long")
            return scan(self, *looked)

    it._scans._collector = Stumbling(launch(tmp_path, checkpoint_path="model_*.json"))
    looks(it, 2)
    write(tmp_path / "work" / "model_40.json", "[1, 2]")
    looks(it, 4)
    assert [fields["step"] for kind, fields in it.results if kind == "staged"] == [40]
    told = [fields["text"] for kind, fields in it.results if kind == "warned"]
    assert told == ["could not look for checkpoints or artifacts (scan): see agent.log of this attempt", ""]
    assert capfd.readouterr().err.count("Traceback") == 1


def test_what_a_checkpoint_is_said_to_be_of_is_the_output_when_it_was_saved(tmp_path: Path) -> None:
    """A first directory is stored 20 s after it was saved: its loss was compared with that of a step far beyond it."""
    it, progress = begun(tmp_path, os.getpid(), "ck-{step}")
    saved_s = time.time() - 20.0
    for step, loss, after_s in ((20, 2.0, -1.0), (430, 0.5, 19.0)):
        progress.written_s = saved_s + after_s
        progress.printed(0, step, {"loss": loss})
    os.utime(write(tmp_path / "work" / "ck-20", "weights"), (saved_s, saved_s))
    looks(it, 4)
    write(tmp_path / "work" / "ck-430", "weights")
    looks(it, 4)
    told = [fields["progress"] for kind, fields in it.results if kind == "staged"]
    assert [(one["last_step"], one["last"]) for one in told] == [(20, {}), (430, {"loss": 0.5})]
