"""The clock for decisions advances by the time since boot. A step of the machine's clock is reported, and dates move along."""

import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from control_server import KEY, Server, staged

from trainmaster import compose, troubles
from trainmaster.control import clock_steps
from trainmaster.control.clock import SteadyClock
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, Outcome, RankEnd, State
from trainmaster.ports.engine import Observation, Phase
from trainmaster.ports.store import ChargeQuery
from trainmaster.store.events import SqlEventStore
from trainmaster.wire import processes

DAY_S = 86_400.0


def test_it_starts_at_the_wall_clock_and_runs_with_the_monotonic_one() -> None:
    before_s = time.time()
    clock = SteadyClock(0.0)
    readings = [clock.now_s() for _ in range(1000)]
    assert before_s - 0.001 <= readings[0] <= time.time() + 0.001
    assert readings == sorted(readings)


def test_it_starts_no_earlier_than_what_is_on_record() -> None:
    """The machine came up with its clock a day behind: recorded times stay in the past."""
    recorded_s = time.time() + 86_400.0
    clock = SteadyClock(recorded_s)
    assert recorded_s <= clock.now_s() < recorded_s + 5.0


@pytest.mark.parametrize("jump_s", [-86_400.0, -1.0, 0.0, 1.0, 86_400.0])
def test_a_wall_clock_that_jumps_moves_nothing(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock(0.0)
    first_s, wall_s = clock.now_s(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    assert first_s <= clock.now_s() < first_s + 5.0
    last_s = clock.now_s()
    assert SteadyClock(last_s).now_s() >= last_s  # a restart after the jump


@pytest.mark.parametrize("jump_s", [-30 * DAY_S, -60.0, 60.0, 30 * DAY_S])
def test_a_step_is_told_once_and_exactly(jump_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R19: after one start with a wrong clock, all dates were wrong until real time had caught up."""
    clock = SteadyClock(0.0, tmp_path / "clock.json")
    assert clock.stepped_s() == 0.0
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + jump_s)
    before_s = clock.now_s()
    assert [clock.stepped_s(), clock.stepped_s()] == [jump_s, jump_s]
    assert abs(clock.now_s() - before_s) < 1.0, "nothing follows it before it is on record"
    clock.follow(jump_s)
    assert clock.stepped_s() == 0.0
    assert abs(clock.now_s() - time.time()) < 1.0
    recorded_s = clock.now_s()
    monkeypatch.setattr(time, "time", right)  # it is set right while the server is down: the same boot knows by how much
    again = SteadyClock(recorded_s, tmp_path / "clock.json")
    assert abs(again.now_s() - recorded_s) < 1.0
    assert again.stepped_s() == -jump_s
    again.follow(-jump_s)
    assert abs(again.now_s() - time.time()) < 1.0


@pytest.mark.parametrize("on_record", [False, True])
def test_a_step_is_followed_once_wherever_the_process_dies(
    on_record: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R19: if control was killed between the two, the step was either lost, and every wait a day longer, or applied twice."""
    clock = SteadyClock(0.0, tmp_path / "clock.json")
    recorded_s, right = clock.now_s(), time.time
    monkeypatch.setattr(time, "time", lambda: right() + DAY_S)
    clock.begin(clock.stepped_s(), 7)
    asked: list[tuple[int, float]] = []

    def recorded(after: int, by_s: float) -> bool:
        asked.append((after, by_s))
        return on_record

    again = SteadyClock(recorded_s + (DAY_S if on_record else 0.0), tmp_path / "clock.json", recorded)
    assert asked == [(7, DAY_S)]
    assert again.stepped_s() == (0.0 if on_record else DAY_S)
    assert abs(again.now_s() + again.stepped_s() - time.time()) < 1.0


@pytest.mark.parametrize("on_record", [False, True])
def test_a_damaged_row_behind_a_noted_step_is_known_by_its_type(
    on_record: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that cannot be decoded was taken for no note at all: a step that was not on record was forgotten."""
    server = Server(Home(tmp_path))
    server.running()
    after = server.events.head().last_seq
    clock, right = SteadyClock(0.0, tmp_path / "clock.json"), time.time
    recorded_s = clock.now_s()
    monkeypatch.setattr(time, "time", lambda: right() + DAY_S)
    clock.begin(DAY_S, after)
    if on_record:
        step(server, DAY_S)
    else:  # the disk was full for the step, and had room again for what came next
        server.submit()
        server.tick()
    with closing(sqlite3.connect(server.home.events_db)) as database, database:
        assert database.execute("UPDATE event SET data = '{\"' WHERE seq = ?", (after + 1,)).rowcount == 1
    place = tmp_path / "clock.json"
    again = SteadyClock(recorded_s + (DAY_S if on_record else 0.0), place, partial(clock_steps.is_recorded, server.events))
    assert again.stepped_s() == (0.0 if on_record else DAY_S)


def test_a_damaged_note_is_told_and_one_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    place = tmp_path / "clock.json"
    place.write_bytes(b"\xff{")
    SteadyClock(0.0, place)
    (told,) = troubles.own.said()
    assert f"{place} is damaged" in told.text
    place.unlink()
    place.mkdir()
    with pytest.raises(OSError, match="regular"):
        SteadyClock(0.0, place)


def test_on_another_boot_a_clock_behind_the_record_was_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    SteadyClock(0.0, tmp_path / "clock.json")
    monkeypatch.setattr("trainmaster.control.clock.boot_id", lambda: "another")
    clock = SteadyClock(time.time() + 30 * DAY_S, tmp_path / "clock.json")
    by_s = clock.stepped_s()
    assert by_s == pytest.approx(-30 * DAY_S, abs=2.0)
    clock.follow(by_s)
    assert SteadyClock(time.time() - 30 * DAY_S, tmp_path / "clock.json").stepped_s() == 0.0, (
        "a server that was down is no step"
    )
    assert processes.boot_id() != "another"


def test_a_process_that_slept_between_two_readings_sees_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock(0.0)
    right, calls = time.clock_gettime, [0.0, 3600.0, 3600.0, 3600.0]
    offset = right(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda which: offset + (calls.pop(0) if calls else 3600.0))
    wall_s = time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + 3600.0)
    assert clock.stepped_s() == 0.0


def differences(server: Server) -> list[str]:
    """What a replay of the whole log has otherwise."""
    return compose.replay_report(server.home)


def spans(server: Server) -> list[tuple[str, int, int | None]]:
    with closing(SqlEventStore(server.home.events_db, read_only=True)) as store:
        charges = store.charges(ChargeQuery(until_ms=2**62))
        return sorted((one.job, one.attempt, None if one.until_ms is None else one.until_ms - one.from_ms) for one in charges)


def end(server: Server, key: AgentKey, outcome: Outcome) -> None:
    """The agent's end is seen."""
    server.engine.says = {key: Observation(Phase.ENDED, outcome)}
    server.loop.watch.probe = True
    server.tick(0.01)
    server.tick(0.01)
    server.engine.says = {}


def gaps(job: Job) -> list[float]:
    """The differences of all dates of a job."""
    dates = [
        job.created_s,
        job.queued_s,
        job.not_before_s,
        job.started_s,
        job.ended_s,
        *(c.committed_s for c in job.checkpoints),
    ]
    if job.attempt is not None:
        dates += [job.attempt.placed_s, job.attempt.started_s, job.attempt.ended_s]
    known = [date for date in dates if date]
    return [round(date - known[0], 6) for date in known]


class Steps:
    """One step, followed by the clock of a server once it is on record."""

    def __init__(self, server: Server, by_s: float) -> None:
        self._server, self._by_s = server, by_s

    def stepped_s(self) -> float:
        return self._by_s

    def begin(self, by_s: float, after: int) -> None:
        assert (by_s, after) == (self._by_s, self._server.loop.world.last_seq)

    def follow(self, by_s: float) -> None:
        assert by_s == self._by_s
        self._server.clock.time_s += by_s
        self._by_s = 0.0


def step(server: Server, by_s: float) -> None:
    """The machine's clock is set."""
    server.loop.steps = Steps(server, by_s)
    server.loop.follow_clock()


@pytest.mark.parametrize("by_s", [-30 * DAY_S, 30 * DAY_S])
def test_no_wait_changes_by_a_step_and_dates_are_the_clocks(tmp_path: Path, by_s: float) -> None:
    """R19: `why` said "restarts in 5 d", and dates lay in the future until real time had caught up."""
    server = Server(Home(tmp_path))
    server.clock.time_s = 100 * DAY_S
    server.running()
    server.tell(staged(n=2))
    server.tick()
    server.submit()  # train-2 runs beside it
    server.tick()
    tries = 0
    while server.job().state is not State.QUEUED and tries < 6:  # the first restarts come at once
        tries += 1
        end(server, AgentKey("train-1", tries, 0), Outcome(machine_error="no process can be made"))
    before = {id: server.job(id) for id in ("train-1", "train-2")}
    charged = spans(server)
    assert before["train-1"].state is State.QUEUED
    backoff_s = before["train-1"].not_before_s - server.clock.time_s
    step(server, by_s)
    assert [gaps(server.job(id)) for id in before] == [gaps(job) for job in before.values()]
    assert server.job().not_before_s - server.clock.time_s == pytest.approx(backoff_s)
    assert server.job().created_s == before["train-1"].created_s + by_s
    assert spans(server) == charged, "no device-second more or less"
    assert differences(server) == []
    (told,) = troubles.own.said()
    assert told.topic == "clock"
    assert "30.0 d" in told.text
    server.tick(backoff_s + 1.0)
    job = server.job()
    assert (job.state, job.attempt is not None and job.attempt.number) == (State.STARTING, tries + 1)
    server.start()  # a restart sees the same
    assert server.job().state is State.STARTING
    assert differences(server) == []


def test_what_ended_while_the_clock_was_ahead_is_dated_anew(tmp_path: Path) -> None:
    """R19: a job that ended under a clock 30 days ahead was missing in accounts until real time had caught up."""
    server = Server(Home(tmp_path))
    server.clock.time_s = 100 * DAY_S
    server.running()
    end(server, KEY, Outcome(ranks=(RankEnd(0, exit_code=0),)))
    first = server.job()
    assert first.state is State.SUCCEEDED
    step(server, 30 * DAY_S)
    server.submit()
    server.tick(10.0)
    second_key = AgentKey("train-2", 1, 0)
    server.tell({"kind": "started", "restored": None, "step": None, "bad": [], "n": 1}, key=second_key)
    server.tick(10.0)
    end(server, second_key, Outcome(ranks=(RankEnd(0, exit_code=0),)))
    wrong = server.events.job("train-2")
    assert wrong is not None
    assert wrong.state is State.SUCCEEDED
    step(server, -30 * DAY_S)
    assert server.events.job("train-1") == first, "it ended before: its dates were right"
    right = server.events.job("train-2")
    assert right is not None
    assert gaps(right) == gaps(wrong)
    assert right.ended_s == pytest.approx(server.clock.time_s, abs=10.0)
    assert differences(server) == []


def test_a_step_on_a_full_disk_is_followed_once_there_is_room(tmp_path: Path) -> None:
    server = Server(Home(tmp_path))
    server.clock.time_s = 100 * DAY_S
    server.running()
    created_s = server.job().created_s
    server.events.full = True
    step(server, -DAY_S)
    server.events.full = False
    server.loop.follow_clock()
    assert server.job().created_s == created_s - DAY_S
    assert differences(server) == []
