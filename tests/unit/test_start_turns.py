"""Jobs that take turns: in an array (`%2`) and by `max_running`. Laws over random histories, checked by counting all jobs."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from control_server import Server

from trainmaster.control.decide import settle_starts
from trainmaster.control.world import Batch, World
from trainmaster.engines.simulated.scripts import Script, always
from trainmaster.home import Home
from trainmaster.lifecycle.machine import accepts, apply
from trainmaster.model import events as ev
from trainmaster.model.commands import CancelJob, HoldJob, ReleaseJob, SubmitJob
from trainmaster.model.job import Action, Job, NodePhase, Outcome, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.options.start_conditions import Dependency, StartConditions, When, waiting_text
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.store.codec import dump, load_event

SPEC = JobSpec("true", "train", experiment="train")
SHARES = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
VERDICTS = (Verdict(Action.FINISH, State.SUCCEEDED, "done"), Verdict(Action.RESTART, State.QUEUED, "restarted"))


def counted(jobs: dict[str, Job], job: Job) -> dict[str, bool]:
    """Whether a job lacks its turn in its array, and by its owner's other jobs: all jobs are counted."""
    start = job.start or StartConditions()
    others = [one for one in jobs.values() if one.id != job.id]
    going = [one for one in others if not one.state.ended and one.state is not State.HELD]
    array = sum(one.start is not None and one.start.at_most > 0 and one.start.array == start.array for one in going)
    let_in = [one for one in going if one.state is State.QUEUED and one.start is not None and one.start.max_running]
    owner = sum(one.owner == job.owner for one in [*let_in, *(one for one in others if one.state.live)])
    return {"at_most": 0 < start.at_most <= array, "max_running": 0 < start.max_running <= owner}


class History:
    """A history of control's decisions about starts, with random events between them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.now_s = 1000.0
        self.allowed = 0

    def submitted(self) -> ev.Submitted:
        rng, ids = self.rng, list(self.world.jobs)
        after = tuple(Dependency(rng.choice(ids), rng.choice(list(When))) for _ in range(bool(ids) and rng.random() < 0.2))
        start = StartConditions(
            after, self.now_s + rng.uniform(-5, 20) if rng.random() < 0.2 else None,
            rng.choice("ab"), rng.choice([0, 0, 1, 2]), max_running=rng.choice([0, 1, 1, 2, 3, 5]),
        )  # fmt: skip
        held = "held at submit" if rng.random() < 0.1 else None
        member, seq = rng.choice(["ada", "ada", "bob"]), len(ids) + 1
        return ev.Submitted(seq, SPEC, Origin(), CodeCopy(), self.now_s, held, member=member, start=start or None)

    def event_for(self, job: Job) -> ev.JobEvent:
        number = job.attempt.number if job.attempt is not None else 0
        if job.state is State.QUEUED and self.rng.random() < 0.7:
            return ev.Placed(number + 1, SHARES)
        if job.state.live and job.attempt is not None:
            if job.attempt.nodes[0].phase is NodePhase.ENDED:
                return ev.AttemptEnded(number, self.rng.choice(VERDICTS))
            return ev.NodeStarted(number, 0) if job.state is State.STARTING else ev.NodeEnded(number, 0, Outcome())
        some = [ev.Held("ann", ""), ev.Released("ann"), ev.CancelRequested("ann", "", None)]
        return self.rng.choice(some)

    def happen(self) -> None:
        batch = Batch(self.world, self.now_s)
        for _ in range(self.rng.randrange(1, 4)):
            if self.rng.random() < 0.35:
                batch.record(f"train-{len(self.world.jobs) + 1}", self.submitted())
                continue
            jobs = [job for job in self.world.jobs.values() if not job.state.ended]
            for job in self.rng.sample(jobs, min(2, len(jobs))):
                event = self.event_for(job)
                if accepts(job, event):
                    batch.record(job.id, event)
        self.now_s += self.rng.uniform(0, 3)

    def settle(self) -> list[tuple[str | None, object]]:
        """Decide; every start is checked against all jobs as they were at that moment."""
        jobs, batch = dict(self.world.jobs), Batch(self.world, self.now_s)
        settle_starts(batch)
        for row in batch.events:
            job = jobs[row.job or ""]
            if isinstance(row.event, ev.StartAllowed):
                assert not any(counted(jobs, job).values()), f"{job.id} was let in, and had no turn"
                self.allowed += 1
            jobs[job.id], _ = apply(job, job.id, row.event, self.now_s)  # type: ignore[arg-type]
        assert jobs == self.world.jobs
        return [(row.job, row.event) for row in batch.events]

    def check_reasons(self) -> None:
        """Every job that waits says for what, and does wait for it."""
        for job in self.world.jobs.values():
            if not job.blocked or job.start is None:
                continue
            left = [one for one in job.start.after if not self.world.jobs[one.job].state.ended]
            early = job.start.begin_s is not None and self.now_s < job.start.begin_s
            lacks = counted(self.world.jobs, job)
            assert left or early or any(lacks.values()), f"{job.id} waits for nothing: {job.reason}"
            if not job.hold:
                unmet = replace(job.start, after=tuple(left), begin_s=job.start.begin_s if early else None)
                assert job.reason == waiting_text(unmet, job.owner)

    def restart(self) -> None:
        """Control loads the jobs in any order, and has nothing to decide."""
        jobs = list(self.world.jobs.values())
        self.rng.shuffle(jobs)
        self.world = World()
        for job in jobs:
            self.world.put(job)
        assert self.settle() == []
        self.check_reasons()


@pytest.mark.parametrize("part", range(4))
def test_no_decision_lets_in_too_many_and_nobody_waits_without_reason(part: int) -> None:
    allowed = 0
    for seed in range(part * 15, part * 15 + 15):
        history = History(seed)
        for _ in range(60):
            history.happen()
            history.settle()
            history.check_reasons()
            if history.rng.random() < 0.1:
                history.restart()
        allowed += history.allowed
    assert allowed > 100


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(Home(tmp_path))


def submit(server: Server, most: int, count: int = 1, user: str = "ada", **conditions: object) -> None:
    start = StartConditions(max_running=most, **conditions)  # type: ignore[arg-type]
    spec = replace(SPEC, max_running=most or None)
    server.ask(*(SubmitJob("", spec, Origin(), CodeCopy(), member=user, start=start or None) for _ in range(count)))


def states(server: Server, *numbers: int) -> list[tuple[str, str]]:
    return [(job.state.value, job.reason) for job in (server.job(f"train-{n}") for n in numbers)]


def test_it_starts_while_fewer_jobs_of_its_owner_run(server: Server) -> None:
    server.engine._script = always(Script(runs_s=1e6))
    submit(server, 0)  # an ordinary job counts once it is placed
    server.tick()
    submit(server, 2, 3)
    submit(server, 1)
    submit(server, 2, user="bob")  # jobs of others do not
    server.tick()
    two = "waits until fewer than 2 of ada's jobs run or are about to (max_running: 2)"
    one = "waits until none of ada's jobs runs or is about to (max_running: 1)"
    starting = ("starting", "starting")
    assert states(server, 1, 2, 3, 4, 5, 6) == [starting, starting, ("held", two), ("held", two), ("held", one), starting]


def test_a_restart_of_control_changes_nothing(server: Server) -> None:
    server.engine._script = always(Script(runs_s=1e6))
    submit(server, 2, 4)
    server.tick()
    before = [state for state, _ in states(server, 1, 2, 3, 4)]
    last = server.events.head().last_seq
    assert before == ["starting", "starting", "held", "held"]
    server.start()
    server.tick(0.0)
    assert [state for state, _ in states(server, 1, 2, 3, 4)] == before
    assert [type(row.event).__name__ for row in server.events.events(last, 100)] == []
    server.ask(CancelJob("train-1", "ann"))
    while not server.job("train-1").state.ended:
        server.tick()
    assert [state for state, _ in states(server, 2, 3, 4)][1:] == ["starting", "held"]
    assert next(
        row.event for row in server.events.told(0, 100, "train-3") if isinstance(row.event, ev.StartAllowed)
    ) == ev.StartAllowed("fewer than 2 of its owner's other jobs run")


def test_a_hold_gives_the_turn_away_and_a_release_waits_for_the_next(server: Server) -> None:
    server.engine._script = always(Script(runs_s=1e6))
    submit(server, 1, 2)
    server.ask(HoldJob("train-1", "ann", ""))
    server.tick()
    assert [state for state, _ in states(server, 1, 2)] == ["held", "starting"]
    server.ask(ReleaseJob("train-1", "ann"))
    server.tick()
    one = "waits until none of ada's jobs runs or is about to (max_running: 1)"
    assert states(server, 1) == [("held", one)]
    server.ask(ReleaseJob("train-1", "ann"))  # now in spite of it
    server.tick()
    assert states(server, 1) == [("starting", "starting")]


def test_one_that_waits_for_something_else_keeps_no_turn_from_others(server: Server) -> None:
    """The turns of an array and of an owner go to the first that waits for nothing else."""
    server.engine._script = always(Script(runs_s=5.0))
    submit(server, 1)
    submit(server, 1, begin_s=1e9)
    submit(server, 1)
    submit(server, 0, array="sweep", at_most=1, begin_s=1e9, user="bob")
    submit(server, 0, 2, array="sweep", at_most=1, user="bob")
    server.tick()
    assert [state for state, _ in states(server, 1, 2, 3, 4, 5, 6)] == ["starting", "held", "held", "held", "starting", "held"]
    for _ in range(20):
        server.tick(10.0)
    assert [state for state, _ in states(server, 1, 2, 3, 4, 5, 6)] == ["succeeded", "held", "succeeded", "held", *["succeeded"] * 2]


def test_a_job_of_an_array_that_a_person_released_keeps_no_turn_from_those_behind_it(server: Server) -> None:
    server.engine._script = always(Script(runs_s=5.0))
    submit(server, 0, 3, array="sweep", at_most=1)
    server.tick()
    server.ask(ReleaseJob("train-2", "ann"))
    server.tick()
    assert [state for state, _ in states(server, 1, 2, 3)] == ["starting", "starting", "held"]
    for _ in range(10):
        server.tick(10.0)
    assert [state for state, _ in states(server, 1, 2, 3)] == ["succeeded"] * 3


def test_an_array_and_max_running_hold_together(server: Server) -> None:
    server.engine._script = always(Script(runs_s=5.0))
    submit(server, 3, 6, array="sweep", at_most=2)
    submit(server, 3, 3)
    most = {"sweep": 0, "all": 0}
    for _ in range(60):
        server.tick(3.0)
        live = [job for job in server.loop.world.jobs.values() if job.state.live]
        sweep = sum(job.start is not None and job.start.array == "sweep" for job in live)
        most = {"sweep": max(most["sweep"], sweep), "all": max(most["all"], len(live))}
    assert (most, {state for state, _ in states(server, *range(1, 10))}) == ({"sweep": 2, "all": 3}, {"succeeded"})


def test_an_end_looks_at_few_jobs_however_many_wait(server: Server) -> None:
    """With both limits, each end changed the reasons of all waiting tasks: a thousand events, again and again."""
    server.engine._script = always(Script(runs_s=5.0))
    submit(server, 4, 300, array="sweep", at_most=2)
    submit(server, 4, 20)
    server.tick()
    last = server.events.head().last_seq
    for _ in range(10):
        server.tick(3.0)
    told = [row.event for row in server.events.events(last, 10_000)]
    assert sum(isinstance(event, ev.StartAllowed) for event in told) > 5
    assert [event for event in told if isinstance(event, ev.Waited) and "turn" in event.reason] == []


def test_events_of_older_versions_load() -> None:
    submitted = ev.Submitted(1, SPEC, Origin(), CodeCopy(), 10.0, start=StartConditions((), 500.0))
    told = dump(submitted)
    older = told.replace(',"max_running":0', "").replace(',"max_running":null', "")
    assert len(told) - len(older) == len(',"max_running":0,"max_running":null')
    assert load_event("Submitted", older) == submitted
