"""Jobs that may not start yet: other jobs, a time, their turn in an array; on control with real stores."""

from pathlib import Path

import pytest
from control_server import Server

from trainmaster.control.world import World
from trainmaster.engines.simulated.scripts import Script, always
from trainmaster.home import Home
from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.commands import CancelJob, HoldJob, ReleaseJob, SubmitJob
from trainmaster.model.job import State
from trainmaster.model.options.start_conditions import Dependency, StartConditions, When
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Restarts

SPEC = JobSpec("true", "train", experiment="train")


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(Home(tmp_path))


def submit(server: Server, *after: Dependency, begin_s: float | None = None, at_most: int = 0, hold: str | None = None) -> None:
    start = StartConditions(after, begin_s, "sweep" if at_most else "", at_most)
    server.ask(SubmitJob("", SPEC, Origin(), CodeCopy(), hold, start=start))


def states(server: Server, count: int) -> list[tuple[str, str]]:
    return [(job.state.value, job.reason) for job in (server.job(f"train-{n}") for n in range(1, count + 1))]


def kinds(server: Server, job: str) -> list[str]:
    return [type(row.event).__name__ for row in server.events.told(0, 100, job)]


def finished(server: Server, job: str) -> None:
    """Let a job's program run to its end."""
    for _ in range(8):
        server.tick(30.0)
    assert server.job(job).state.ended


def test_a_job_starts_after_another_one_and_survives_a_restart_of_control(server: Server) -> None:
    server.submit()
    submit(server, Dependency("train-1"))
    server.tick()
    assert states(server, 2)[1] == ("held", "waits for train-1 to succeed")
    assert list(server.loop.world.workload.waiting) == []  # the scheduler does not see it
    server.start()
    assert states(server, 2)[1] == ("held", "waits for train-1 to succeed")
    finished(server, "train-1")
    finished(server, "train-2")
    assert [state for state, _ in states(server, 2)] == ["succeeded", "succeeded"]
    assert kinds(server, "train-2")[:3] == ["Submitted", "StartAllowed", "Placed"]


@pytest.mark.parametrize(
    ("exit_code", "expected"),
    [
        (0, ["starting", "starting", "cancelled"]),
        (3, ["cancelled", "starting", "starting"]),
    ],
)
def test_the_end_of_the_other_job_decides(server: Server, exit_code: int, expected: list[str]) -> None:
    server.engine._script = always(Script(runs_s=5.0, exit_code=exit_code))
    server.submit(restarts=Restarts(0, 0))
    for when in When:
        submit(server, Dependency("train-1", when))
    submit(server, Dependency("train-2" if exit_code else "train-4", When.OK))  # of one that is cancelled for its dependency
    server.tick(1.0)
    while not server.job().state.ended:
        server.tick(1.0)
    seen = states(server, 5)
    assert [state for state, _ in seen[1:4]] == expected
    verb, wanted = ("has failed", "success") if exit_code else ("has succeeded", "failure")
    lost = 1 if exit_code else 3
    assert seen[lost] == ("cancelled", f"train-1 {verb}, and this job was to start only after its {wanted}")
    assert seen[4] == ("cancelled", f"train-{lost + 1} was cancelled, and this job was to start only after its success")
    assert kinds(server, "train-5") == ["Submitted", "StartRefused"]


def test_a_job_after_one_that_has_ended_is_decided_at_once(server: Server) -> None:
    server.submit()
    server.tick()
    finished(server, "train-1")
    server.start()  # the ended job is not in memory
    submit(server, Dependency("train-1"))
    submit(server, Dependency("train-1", When.FAILED))
    server.tick()
    assert [state for state, _ in states(server, 3)] == ["succeeded", "starting", "cancelled"]


def test_a_job_begins_at_its_time(server: Server) -> None:
    submit(server, begin_s=1500.0)
    server.tick()
    assert states(server, 1) == [("held", "begins at 1970-01-01 00:25:00 UTC")]
    assert server.loop._next_wait_s(1499.5, None) <= 0.5  # control wakes for it
    server.tick(498.0)
    assert server.job().state is State.HELD
    server.tick(1.0)
    assert server.job().state is State.STARTING


def test_a_begin_after_a_while_moves_with_the_clock_and_a_date_does_not() -> None:
    for relative in (False, True):
        submitted = ev.Submitted(1, SPEC, Origin(), CodeCopy(), 10.0, start=StartConditions((), 500.0, relative=relative))
        job, _ = apply(None, "train-1", submitted, 10.0)
        job, _ = apply(job, "train-1", ev.ClockSet(3600.0), 3610.0)
        assert job.start == StartConditions((), 4100.0 if relative else 500.0, relative=relative)


def test_at_most_two_of_an_array_are_active(server: Server) -> None:
    for _ in range(12):
        submit(server, at_most=2)
    server.tick()
    text = "waits for its turn: at most 2 jobs of its array are active at once"
    assert states(server, 12) == [("starting", "starting")] * 2 + [("held", text)] * 10
    server.ask(CancelJob("train-3", "ann"))
    server.start()
    server.tick()
    most = 0
    while any(not server.job(f"train-{n}").state.ended for n in range(1, 13)):
        server.tick(7.0)
        active = [job for job in server.loop.world.jobs.values() if job.state not in (State.HELD,) and not job.state.ended]
        most = max(most, len(active))
        assert server.clock.time_s < 5000.0
    assert (most, [state for state, _ in states(server, 12)].count("succeeded")) == (2, 11)
    placed = [row.job for row in server.events.events(0, 1000) if type(row.event).__name__ == "Placed"]
    assert placed == [f"train-{n}" for n in range(1, 13) if n != 3]  # in order, not by the text of their ids
    gate = server.loop.world.gate
    assert (gate.active, gate.lines, gate.lines_of, gate.in_line) == ({}, {}, {}, {})


def test_a_release_ends_a_hold_first_and_then_the_waiting(server: Server) -> None:
    server.submit()
    submit(server, Dependency("train-1"), hold="held at submit")
    server.tick()
    assert states(server, 2)[1] == ("held", "held at submit")
    server.ask(ReleaseJob("train-2", "ann"))
    server.tick()
    assert states(server, 2)[1] == ("held", "waits for train-1 to succeed")
    server.ask(HoldJob("train-2", "ann", "not yet"))
    server.tick()
    assert states(server, 2)[1] == ("held", "held by ann: not yet")
    finished(server, "train-1")
    assert states(server, 2)[1] == ("held", "held by ann: not yet")
    server.ask(ReleaseJob("train-2", "ann"))
    server.tick()
    assert server.job("train-2").state is State.STARTING
    submit(server, begin_s=1e9)
    server.tick()
    server.ask(ReleaseJob("train-3", "ann"))
    server.tick()
    assert server.job("train-3").state is State.STARTING


def test_a_held_task_gives_its_turn_to_the_next_one(server: Server) -> None:
    server.engine._script = always(Script(runs_s=1e6))
    for _ in range(3):
        submit(server, at_most=1)
    server.ask(HoldJob("train-1", "ann", ""))
    server.tick()
    assert [state for state, _ in states(server, 3)] == ["held", "starting", "held"]
    server.ask(ReleaseJob("train-1", "ann"))
    server.tick()
    text = "waits for its turn: at most 1 job of its array is active at once"
    assert states(server, 3) == [("held", text), ("starting", "starting"), ("held", text)]
    server.ask(CancelJob("train-2", "ann"))
    while not server.job("train-2").state.ended:
        server.tick()
    assert [state for state, _ in states(server, 3)] == ["starting", "cancelled", "held"]


def test_a_released_task_of_an_array_does_not_stop_the_others(server: Server) -> None:
    server.engine._script = always(Script(runs_s=20.0))
    for _ in range(4):
        submit(server, at_most=1)
    server.tick()
    server.ask(ReleaseJob("train-2", "ann"))
    server.tick()
    assert [state for state, _ in states(server, 4)] == ["starting", "starting", "held", "held"]
    for _ in range(40):
        server.tick(7.0)
    assert [state for state, _ in states(server, 4)] == ["succeeded"] * 4
    assert (server.loop.world.gate.active, server.loop.world.gate.lines) == ({}, {})


def test_what_waits_costs_a_tick_nothing(server: Server) -> None:
    """Many jobs wait for one: only its end looks at them."""
    server.engine._script = always(Script(runs_s=1e6))
    server.submit()
    start = StartConditions((Dependency("train-1"),))
    server.ask(*(SubmitJob("", SPEC, Origin(), CodeCopy(), start=start) for _ in range(300)))
    server.tick()
    looked: list[str] = []
    known = server.loop.recorder.events.job
    server.loop.recorder.events.job = lambda id: looked.append(id) or known(id)  # type: ignore[assignment, method-assign, func-returns-value]
    gate = server.loop.world.gate
    for _ in range(5):
        server.tick()
    assert (gate.due, len(gate.blocked), len(server.loop.world.workload.waiting), looked) == (set(), 300, 0, [])
    assert World.of(server.events.load_live()).gate.dependents == gate.dependents
