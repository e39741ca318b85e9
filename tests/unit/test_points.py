"""Metric points that wait for the server: none is lost or duplicated, if a process is away or killed, or a disk is full."""

import asyncio
import errno
import fcntl
import json
import os
import random
import time
from pathlib import Path

import pytest
from effort import examples

from trainmaster import troubles
from trainmaster.agent.transport import point_file, points
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.agent.transport.points import Points
from trainmaster.home import Home
from trainmaster.ports.metric_store import Arrival, MetricPoint
from trainmaster.server.runtime.metric_writer import MetricWriter
from trainmaster.server.runtime.unsent_points import import_points
from trainmaster.store.metrics.points import SqlMetricStore


def steps_of(taken: list[tuple]) -> list[int]:  # type: ignore[type-arg]
    return [point[3] for point in taken]


def left_steps(path: Path) -> list[int]:
    return [point.step for point in point_file.recover(str(path), str(path.parent))]


def test_what_waits_is_in_the_file_until_it_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "below" / "points.jsonl"
    waiting = Points(str(path))
    for step in (1, 2, 3):
        waiting.put(0, step, {"loss": float(step)})
    waiting.persist({})
    assert steps_of(waiting.take()) == [1, 2, 3]
    assert left_steps(path) == [1, 2, 3]
    waiting.put_back()
    assert (steps_of(waiting.take()), waiting.empty) == ([1, 2, 3], True)
    waiting.sent()
    assert left_steps(path) == []
    waiting.finish()
    assert not path.exists()


def test_a_point_keeps_its_time(tmp_path: Path) -> None:
    waiting = Points(str(tmp_path / "points.jsonl"))
    waiting.put(3, None, {"loss": 1.5, "nan": float("nan")})
    waiting.persist({})
    (left,) = point_file.recover(str(tmp_path / "points.jsonl"), str(tmp_path))
    assert left.at_s is not None
    assert (abs(left.time_s - time.time()) < 5.0, abs(left.at_s - time.monotonic()) < 5.0) == (True, True)
    assert (left.n, left.rank, left.step, left.values["loss"], left.values["nan"] != left.values["nan"]) == (
        1,
        3,
        None,
        1.5,
        True,
    )


def test_any_number_waits_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes in, is sent or comes back in whatever order: each arrives once, in order."""
    monkeypatch.setattr(points, "MEMORY_MAX", 50)
    monkeypatch.setattr(points, "BATCH_MAX", 20)
    monkeypatch.setattr(point_file, "_LINE_POINTS", 10)
    monkeypatch.setattr(point_file, "_REWRITTEN_BYTES", 2000)
    for seed in range(examples(8, 60)):
        chance = random.Random(seed)
        monkeypatch.setattr(point_file, "_CHUNK", chance.choice((60, 200, 500, 700, 2000)))  # about a line, or less, or more
        waiting = Points(str(tmp_path / f"{seed}.jsonl"))
        put, arrived = 0, []
        for _ in range(300):
            match chance.choice(("put", "put", "keep", "sent", "back")):
                case "put":
                    for _ in range(chance.randrange(25)):
                        waiting.put(0, put, {"loss": 0.5})
                        put += 1
                case "keep":
                    waiting.persist({"rank0.sdk": put})
                    assert set(left_steps(tmp_path / f"{seed}.jsonl")) >= set(range(len(arrived), put))
                case "sent":
                    arrived += steps_of(waiting.take())
                    waiting.sent()
                case "back":
                    waiting.take()
                    waiting.put_back()
            assert len(waiting._waiting) <= 50 + 60  # and what one reading of the file brings
        waiting.persist({})
        while not waiting.empty:
            arrived += steps_of(waiting.take())
            waiting.sent()
        assert (arrived, waiting.dropped) == (list(range(put)), 0)


def test_a_full_disk_costs_only_what_memory_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MEMORY_MAX", 50)
    (tmp_path / "file").touch()
    waiting = Points(str(tmp_path / "file" / "points.jsonl"))  # where there is no directory, nothing can be written
    for step in range(60):
        waiting.put(0, step, {})
    waiting.persist({})
    found = []
    while not waiting.empty:
        found += steps_of(waiting.take())
        waiting.sent()
    assert (found, waiting.dropped) == (list(range(50)), 10)
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "file" / "points.jsonl"))
    for step in range(60):
        outbox.point(0, step, {})
    outbox.persist_points({})
    assert [report["topic"] for report in outbox.batch()[0]] == ["metrics dropped"]


def test_what_a_full_disk_cut_off_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MEMORY_MAX", 5)
    monkeypatch.setattr(point_file, "_LINE_POINTS", 2)
    waiting = Points(str(tmp_path / "points.jsonl"))
    for step in range(10):
        waiting.put(0, step, {})
    waiting.persist({})
    whole = point_file._write_all

    def cut_off(file: int, data: bytes) -> None:
        os.write(file, data[: data.index(b"\n") + 5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(point_file, "_write_all", cut_off)
    for step in range(10, 14):
        waiting.put(0, step, {})
    waiting.persist({})
    found = []
    while not waiting.empty:
        found += steps_of(waiting.take())
        waiting.sent()
    assert (found, waiting.dropped) == (list(range(10)), 4)
    monkeypatch.setattr(point_file, "_write_all", whole)
    waiting.put(0, 14, {})
    waiting.persist({})
    assert steps_of(waiting.take()) == [14]


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MEMORY_MAX", 10)
    monkeypatch.setattr(point_file, "FILE_MAX_BYTES", 4000)
    waiting = Points(str(tmp_path / "points.jsonl"))
    for step in range(200):
        waiting.put(0, step, {"loss": 1.0})
        waiting.persist({})
    found = []
    while not waiting.empty:
        found += steps_of(waiting.take())
        waiting.sent()
    assert (found[:30], len(found)) == (list(range(30)), 200 - waiting.dropped)
    assert found == sorted(set(found))  # a point whose line is shorter, as its time has fewer digits, may fit after one that was dropped
    assert 0 < waiting.dropped < 170


def sdk(step: int) -> str:
    return json.dumps({"t": "m", "step": step, "values": {"loss": float(step)}}) + "\n"


def test_what_a_killed_agent_had_not_read_is_read_for_it(tmp_path: Path) -> None:
    (tmp_path / "rank1.sdk").write_text(sdk(1) + sdk(2) + '{"t":"c"}\n' + sdk(3)[:-5])
    (tmp_path / "role-eval-b.sdk").write_text(sdk(7))
    waiting = Points(str(tmp_path / "points.jsonl"))
    waiting.put(1, 1, {"loss": 1.0})
    waiting.persist({"rank1.sdk": len(sdk(1)), "role-eval-b.sdk": 0})
    found = [
        (left.n, left.rank, left.step, left.values) for left in point_file.recover(str(tmp_path / "points.jsonl"), str(tmp_path))
    ]
    assert found == [(1, 1, 1, {"loss": 1.0}), (2, 1, 2, {"loss": 2.0}), (3, 0, 7, {"eval-b/loss": 7.0})]
    (tmp_path / "exit.json").touch()  # one that ended by itself had read it all
    assert left_steps(tmp_path / "points.jsonl") == [1]


class Left:
    """A home with what agents left in it, and a metric store."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.metrics = SqlMetricStore(root / "metrics.db")

    def agent(self, key: str, *steps: int) -> Path:
        path = self.home.points(key)
        waiting = Points(str(path))
        for step in steps:
            waiting.put(0, step, {"loss": float(step)})
        waiting.persist({})
        job, _, rest = key.rpartition(".")
        directory = self.home.attempt(job, int(rest.split("/")[0]), 0)
        directory.mkdir(parents=True)
        (directory / "lock").touch()
        return path


def test_the_server_takes_up_what_agents_left(tmp_path: Path) -> None:
    world = Left(tmp_path)
    first, second, other = world.agent("a-1.1/n0", 1, 2), world.agent("a-1.2/n0", 2, 3), world.agent("b-1.1/n0", 9)
    with other.open("ab") as file:
        file.write(b'[1, 2\n["x"]\n')  # the disk was full
    assert import_points(world.home, world.metrics, "a-1") == 4
    assert (first.exists(), second.exists(), other.exists()) == (False, False, True)
    assert world.metrics.series("a-1", "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert (import_points(world.home, world.metrics), import_points(world.home, world.metrics)) == (1, 0)
    assert world.metrics.series("b-1", "loss") == [(9, 9.0)]


def test_what_no_agent_writes_is_put_aside(tmp_path: Path) -> None:
    world = Left(tmp_path)
    path = world.agent("a-1.1/n0", 1)
    path.write_text('{"points": [[1.0, 2.0, 0, 5, ["loss"]]], "read": {}}\n')
    assert (import_points(world.home, world.metrics), os.listdir(path.parent)) == (0, ["a-1.1~n0.unreadable"])


def test_what_cannot_be_read_now_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Left(tmp_path)
    path, other = world.agent("a-1.1/n0", 1), world.agent("b-1.1/n0", 2)
    left = point_file.recover

    def broken(name: str, directory: str) -> list[point_file.RecoveredPoint]:
        if name == str(path):
            raise OSError(errno.EIO, "Input/output error")
        return left(name, directory)

    monkeypatch.setattr(point_file, "recover", broken)
    assert (import_points(world.home, world.metrics), path.exists(), other.exists()) == (1, True, False)
    assert [(one.topic, "a-1.1/n0" in one.text) for one in troubles.own.said()] == [("metrics", True)]
    monkeypatch.undo()
    assert (import_points(world.home, world.metrics), list(troubles.own.said())) == (1, [])
    world.agent("c-1.1/n0", 3)
    monkeypatch.setattr(os, "open", lambda *given: (_ for _ in ()).throw(OSError(errno.EMFILE, "Too many open files")))
    assert import_points(world.home, world.metrics) == 0  # whether its agent is gone is not known
    assert ["c-1.1/n0" in one.text for one in troubles.own.said()] == [True]


def test_a_lock_that_cannot_be_opened_is_told_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """R15: it ended taking up for all; then it was passed over, but in silence, for as long as it stood."""
    world = Left(tmp_path)
    path, other = world.agent("a-1.1/n0", 1), world.agent("b-1.1/n0", 2)
    lock = world.home.attempt("a-1", 1, 0) / "lock"
    lock.unlink(missing_ok=True)
    lock.mkdir(parents=True)
    assert (import_points(world.home, world.metrics), path.exists(), other.exists()) == (1, True, False)
    assert [(one.topic, "a-1.1/n0" in one.text, str(lock) in one.text) for one in troubles.own.said()] == [("metrics", True, True)]
    lock.rmdir()
    assert (import_points(world.home, world.metrics), list(troubles.own.said())) == (1, [])


def test_a_living_agents_points_are_its_own(tmp_path: Path) -> None:
    world = Left(tmp_path)
    path = world.agent("a-1.1/n0", 1)
    with (world.home.attempt("a-1", 1, 0) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (import_points(world.home, world.metrics), path.exists()) == (0, True)
    assert (import_points(world.home, world.metrics), path.exists()) == (1, False)


def test_what_an_earlier_attempt_left_passes_the_fence_and_replaces_nothing_newer(tmp_path: Path) -> None:
    world = Left(tmp_path)
    world.agent("a-1.1/n0", 1, 5)
    world.metrics.write([MetricPoint("a-1", 2, 0, 5, "loss", 50.0, 1.0)], [])
    assert import_points(world.home, world.metrics) == 2
    assert world.metrics.series("a-1", "loss") == [(1, 1.0), (5, 50.0)]
    assert world.metrics.last(["a-1"])["a-1"]["loss"][:2] == (5, 50.0)
    assert os.listdir(tmp_path / "points") == []


def test_points_survive_an_error_of_the_disk_at_the_first_sample_of_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were refused as too late when they were read at last, and their file was deleted."""
    world = Left(tmp_path)
    path = world.agent("a-1.1/n0", 1, 2)
    rows = point_file.recover(str(path), str(tmp_path))
    early = Arrival(0, int(rows[0].n or 0), rows[0].at_s)
    world.metrics.write([MetricPoint("a-1", 1, 0, None, "stepless", 1.0, 1.0, early)], [])  # its answer was lost
    path.write_text(path.read_text().replace('0, 1, {"loss"', '0, null, {"stepless"'))

    def broken(name: str, directory: str) -> list[point_file.RecoveredPoint]:
        raise OSError(errno.EIO, "Input/output error")

    async def write() -> None:
        monkeypatch.setattr(point_file, "recover", broken)
        await writer.put([MetricPoint("a-1", 2, 0, 9, "loss", 9.0, 1.0)], [])
        monkeypatch.undo()
        await writer.import_unsent()
        await writer.put([MetricPoint("a-1", 1, 0, 9, "loss", 1.0, 1.0)], [])  # one that comes from the agent is too late

    writer = MetricWriter(world.home, world.metrics)
    asyncio.run(write())
    writer.close()
    assert world.metrics.series("a-1", "loss") == [(2, 2.0), (9, 9.0)]
    assert world.metrics.series("a-1", "stepless") == [(0, 1.0)]  # once
    assert (path.exists(), list(troubles.own.said())) == (False, [])
