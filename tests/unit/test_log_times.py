"""When the lines of a log were written: the agent's file, its bound, a log that is cut or emptied, a full disk; its reader."""

import errno
import os
import random
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from trainmaster.agent.files import log_times
from trainmaster.agent.files.log_times import LogTimes
from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.rank import Rank
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.errors import ConflictError
from trainmaster.server.streams import rank_logs
from trainmaster.server.streams.rank_logs import Chunk, Cursor, RankFile
from trainmaster.wire.names import TIMES_RECORD, times_path


def log_of(root: Path) -> RankFile:
    return RankFile(1, False, 0, 0, str(root / "rank0.log"))


def append(root: Path, data: bytes, time_s: float) -> int:
    """Print something at a time; returns the log's size."""
    path = root / "rank0.log"
    with path.open("ab") as file:
        file.write(data)
    os.utime(path, (time_s, time_s))
    return path.stat().st_size


def read(root: Path, since_s: float | None = None, live: int | None = None) -> list[Chunk]:
    cursor = Cursor()
    if since_s is not None:
        rank_logs.skip_to_time([log_of(root)], cursor, since_s)
    return rank_logs.read_new([log_of(root)], cursor, live, times=True)


def test_a_line_has_the_time_at_which_it_was_written_and_a_busy_log_one_per_second(tmp_path: Path) -> None:
    times = LogTimes(str(tmp_path / "rank0.log"))
    times.grown(append(tmp_path, b"a\n", 100.25), 100.25, 0.0)
    times.grown(append(tmp_path, b"b\nc", 100.5), 100.5, 0.3)  # within the same second
    times.grown(append(tmp_path, b"c\n", 100.75), 100.75, 0.6)
    times.grown((tmp_path / "rank0.log").stat().st_size, 100.75, 1.0)  # not forgotten, although nothing new is there
    times.grown(append(tmp_path, b"d\n", 200.5), 200.5, 100.0)
    times.grown(append(tmp_path, b"e", 200.75), 200.75, 100.2)
    assert Path(times_path(str(tmp_path / "rank0.log"))).read_bytes() == b"".join(
        TIMES_RECORD.pack(*one) for one in ((2, 100.25), (7, 100.75), (9, 200.5))
    )
    assert read(tmp_path, live=1) == [Chunk(1, 0, None, "a\nb\ncc\nd\ne", [(1, 100.25), (2, 100.75), (1, 200.5), (1, 200.75)])]
    assert read(tmp_path) == [Chunk(1, 0, None, "a\nb\ncc\nd\ne", [(1, 100.25), (2, 100.75), (1, 200.5), (1, None)])]
    times.grown(10, 200.75, 100.3, last=True)
    assert read(tmp_path)[0].times == [(1, 100.25), (2, 100.75), (1, 200.5), (1, 200.75)]
    assert [chunk.text for chunk in read(tmp_path, 100.6)] == ["b\ncc\nd\ne"]
    assert [chunk.text for chunk in read(tmp_path, 150.0)] == ["d\ne"]
    assert (read(tmp_path, 300.0), read(tmp_path, 0.0)[0].text) == ([], "a\nb\ncc\nd\ne")


def test_pages_that_begin_anywhere_have_the_same_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, times = random.Random(7), LogTimes(str(tmp_path / "rank0.log"))
    expected: list[float] = []
    for number in range(60):
        time_s = 1000.0 + 2 * number
        lines = rng.randrange(3)
        size = append(tmp_path, b"".join(b"%d\n" % rng.randrange(10 ** rng.randrange(1, 6)) for _ in range(lines)), time_s)
        times.grown(size, time_s, time_s)
        expected += [time_s] * lines
    monkeypatch.setattr(rank_logs, "ANSWER_MAX_BYTES", 13)
    cursor, found, lines = Cursor(), list[float | None](), 0
    begun = False  # whether the last page ended within a line
    while chunks := rank_logs.read_new([log_of(tmp_path)], cursor, None, times=True):
        (chunk,) = chunks
        told = [time_s for count, time_s in chunk.times or () for _ in range(count)]
        assert len(told) == len(chunk.text.split("\n")) - chunk.text.endswith("\n")
        found += told[begun:]
        begun = not chunk.text.endswith("\n")
        lines += chunk.text.count("\n")
    assert (found, lines) == (expected, len(expected))


def test_a_week_of_output_stays_within_its_bound_and_recent_times_stay_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is lowered; the law is the same: coarser in proportion to the age."""
    monkeypatch.setattr(log_times, "TIMES_RECORDS_MAX", 1024)
    monkeypatch.setattr(log_times, "_EXACT_S", 128.0)
    times, end_s = LogTimes(str(tmp_path / "rank0.log")), 20_000
    for second in range(1, end_s + 1):
        times.grown(second, float(second), float(second))
    data = Path(times_path(str(tmp_path / "rank0.log"))).read_bytes()
    records = list(TIMES_RECORD.iter_unpack(data))
    assert len(records) <= 1024
    assert (records[0], records[-1]) == ((1, 1.0), (end_s, float(end_s)))
    for (before, _), (_, time_s) in pairwise(records):
        assert time_s - before <= max(2.0, (end_s - time_s) / 16)  # a byte is written once a second: its offset is its time
    assert [offset for offset, _ in records[-100:]] == list(range(end_s - 99, end_s + 1))


def test_a_clock_that_goes_back_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_times, "TIMES_RECORDS_MAX", 64)
    times = LogTimes(str(tmp_path / "rank0.log"))
    for number in range(1000):
        times.grown(number + 1, 1e6 - 60.0 * number, float(number))
    assert (len(Path(times_path(str(tmp_path / "rank0.log"))).read_bytes()) <= 64 * TIMES_RECORD.size, times.trouble) == (True, "")


@pytest.mark.parametrize("emptied", [40, 63])
def test_a_file_of_times_that_another_process_empties_costs_the_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emptied: int
) -> None:
    monkeypatch.setattr(log_times, "TIMES_RECORDS_MAX", 64)
    times, path = LogTimes(str(tmp_path / "rank0.log")), Path(times_path(str(tmp_path / "rank0.log")))
    for number in range(200):
        times.grown(number + 1, float(number), float(number))
        if number == emptied:
            path.write_bytes(b"")
    assert (times.trouble, path.exists()) == ("another process changed the file of its times", False)


@pytest.mark.parametrize("seed", range(40))
def test_a_file_of_times_that_holds_anything_does_no_harm(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    size = append(tmp_path, b"".join(b"%d\n" % number for number in range(1000)), 100.0)
    offsets = [rng.randrange(size) for _ in range(50)]
    written = [TIMES_RECORD.pack(offset, rng.choice([1e300, float("nan"), -1.0, 50.0, float("inf")])) for offset in offsets]
    data = rng.randbytes(rng.randrange(500)) if seed % 2 else b"".join([*written, TIMES_RECORD.pack(rng.randrange(size), 100.0)])
    Path(times_path(str(tmp_path / "rank0.log"))).write_bytes(data)
    (chunk,) = read(tmp_path)
    assert (chunk.text.count("\n"), sum(count for count, _ in chunk.times or ())) == (1000, 1000)
    with suppress(ConflictError):
        read(tmp_path, 60.0)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RankOutput, Outbox]:
    """A rank whose log may have 4,096 bytes, and whose times are recorded at every look."""
    monkeypatch.setattr(log_times, "_EVERY_S", 0.0)
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    return RankOutput(Rank(0, str(tmp_path)), Parser(), 4096, Progress(outbox)), outbox


def printed(reader: RankOutput, root: Path, first: int, last: int) -> None:
    """Print line N at second N, and let the agent look after each."""
    for number in range(first, last):
        append(root, b"line %05d\n" % number, float(number))
        reader.turn(time.monotonic() + 9.0)


def test_a_log_that_is_cut_keeps_the_times_of_what_is_left(tmp_path: Path, output: tuple[RankOutput, Outbox]) -> None:
    reader, _ = output
    printed(reader, tmp_path, 1000, 2000)
    reader.finish()
    (chunk,) = read(tmp_path)
    lines = chunk.text.split("\n")[:-1]
    told = [time_s for count, time_s in chunk.times or () for _ in range(count)]
    assert len(told) == len(lines)
    assert any("reached its limit" in line for line in lines)
    whole = [(line, time_s) for line, time_s in zip(lines, told, strict=True) if len(line) == len("line 00000")]
    assert len(whole) > 200
    assert [(line, float(line.split()[1])) for line, _ in whole] == whole
    assert read(tmp_path, 1990.0)[0].text.split("\n")[:-1] == [f"line {number:05}" for number in range(1990, 2000)]


def test_a_program_that_empties_its_log_gets_new_times(tmp_path: Path, output: tuple[RankOutput, Outbox]) -> None:
    reader, _ = output
    printed(reader, tmp_path, 1000, 1010)
    os.truncate(tmp_path / "rank0.log", 0)
    append(tmp_path, b"again\n", 3000.0)
    assert read(tmp_path)[0].times == [(1, None)]  # the agent has not seen it: the old times are not used
    with pytest.raises(ConflictError):
        read(tmp_path, 2999.0)
    reader.turn(time.monotonic() + 9.0)
    assert read(tmp_path, 2999.0) == [Chunk(1, 0, None, "again\n", [(1, 3000.0)])]


@pytest.mark.parametrize("written", [None, 7])
def test_a_full_disk_costs_the_times_and_nothing_else(
    tmp_path: Path, output: tuple[RankOutput, Outbox], monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    reader, outbox = output
    printed(reader, tmp_path, 1000, 1003)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if written is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    monkeypatch.setattr(os, "pwrite", full)
    printed(reader, tmp_path, 1003, 1005)
    monkeypatch.undo()
    printed(reader, tmp_path, 1005, 1006)
    why = "the disk is full" if written else "[Errno 28] No space left on device"
    assert list(outbox.warned.values())[-1]["text"] == f"rank 0: the times of its lines are not known: {why}"
    assert (reader.trouble, not Path(times_path(str(tmp_path / "rank0.log"))).exists()) == ("", True)
    assert read(tmp_path)[0].times == [(6, None)]
    with pytest.raises(ConflictError, match="the times of the output of rank 0 in attempt 1 are not known"):
        read(tmp_path, 1001.0)
    assert read(tmp_path, 2000.0) == []  # it was not written since: that is certain
    reader.finish()
