"""The five defects that people report of schedulers everywhere (docs/explanation/five-defects.md): none of them can happen here.

What needs a loop is played in the simulated world: the production loop, its store and its events, under a virtual clock.
"""

import random
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pytest
from effort import examples

from trainmaster.engines.simulated.scripts import Script
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.model.commands import ConfigureCluster, SubmitJob
from trainmaster.model.job import Job, State
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Resources
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.remedies import changed, remedy
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.known import LIVE, POLICIES, chosen
from trainmaster.simulator.replay import Replay
from trainmaster.simulator.trace import Arrival, Trace, gang, gpu_nodes
from trainmaster.testing.histories.scenario import CALM, Scenario

HOUR_S = 3600.0


@dataclass(slots=True)
class Story(Scenario):
    """Two nodes of 8 GPUs where only that goes wrong which a test lets go wrong. `scripts` are by the job's command."""

    scripts: dict[str, Script] = field(default_factory=dict)
    policy: str = "fair-share"

    def __post_init__(self) -> None:
        self.faults, self.crash_after_commit, self.full, self.refuses = CALM, 0.0, 0.0, 0.0
        Scenario.__post_init__(self)
        self.people.ask(ConfigureCluster(Cluster(pools=(Pool("default", policy=self.policy),)), "ann"))

    def _script(self, submission: Submission, rng: random.Random) -> Script:
        return self.scripts.get(str(submission.job.spec.command), Script())

    def submit(self, command: str, nodes: int, gpus: int, work: str = "training", limit_s: float | None = None) -> str:
        spec = JobSpec(command, experiment="x", work=work, time_limit_s=limit_s, resources=Resources(nodes=nodes, gpus=gpus))
        row = NewRow(f"{command}-{len(self.people.submitted)}", SubmitJob("", spec, Origin(), CodeCopy()), self.clock.wall_s(), "ann")
        self.people.submitted += self.inbox.accept([row])
        return self.people.submitted[-1]

    def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        until_s = self.clock.time_s + seconds
        while self.clock.time_s < until_s:
            self._step(step_s)

    def job(self, id: str) -> Job:
        found = self.events.job(id)
        assert found is not None
        return found

    def recorded(self, id: str, kind: type) -> list[object]:
        return [row.event for row in self.events.events(0, 100_000, id) if isinstance(row.event, kind)]


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(Home(tmp_path), 0)


# 1. A head that cannot start blocks those behind it.


@pytest.mark.parametrize("policy", LIVE)
@pytest.mark.parametrize("head", ["too large for now", "too large for ever", "resting", "over its quota"])
def test_a_head_that_cannot_start_does_not_block_those_behind_it(policy: str, head: str) -> None:
    nodes = {"too large for now": 2, "too large for ever": 9}.get(head, 1)
    rules = Cluster(projects=(Project("full", quotas=(("gpus", Quota(0.0, 4.0, 4.0)),)),))
    busy = Task(0, "busy", kind_of(ask_of(1, Shape(gpus=8)), Owner("x"), 1000.0), 0.0, 0.0, 1000.0)
    first = Task(1, "head", kind_of(ask_of(nodes, Shape(gpus=8)), Owner("full" if "quota" in head else "x"), 1000.0), 50.0)
    first = first._replace(estimate_s=1000.0, not_before_s=500.0 if head == "resting" else 0.0)
    small = Task(2, "small", kind_of(ask_of(1, Shape(gpus=1)), Owner("x"), 10.0), 60.0, 0.0, 10.0)
    running = {"busy": Run(busy, Grant(busy.kind.ask, (0,), (tuple(range(8)),)), 0.0)}
    snapshot = Snapshot(100.0, gpu_nodes(2, 8), {"head": first, "small": small}, running, rules=rules)
    plan = cycle(snapshot, POLICIES[policy])
    assert [one.job for one in plan.placements] == ["small"]
    assert plan.reason(first, 100.0).text


# 2. Thrashing, when preemption victims exit at different times.


def test_what_some_give_back_waits_for_whom_it_was_freed_however_late_the_last_of_them_leaves(story: Story) -> None:
    story.scripts = {
        "slow": Script(runs_s=900.0, term_s=20.0), "fast": Script(runs_s=900.0, term_s=0.5), "gang": Script(runs_s=60.0),
        "eager": Script(runs_s=30.0),
    }  # fmt: skip
    slow, fast = story.submit("slow", 1, 8), story.submit("fast", 1, 8)
    story.pass_time(400.0)  # they have run for long enough to be asked
    eager = [story.submit("eager", 1, 8) for _ in range(4)]
    large = story.submit("gang", 2, 8, "production")
    story.pass_time(10.0)
    assert (story.job(fast).state, story.job(slow).state) == (State.QUEUED, State.STOPPING), "one has left, the other has not"
    assert all(story.job(id).attempt is None for id in eager), "what has become free is kept"
    story.pass_time(30.0)
    assert story.job(large).state is State.RUNNING
    assert story.recorded(large, ev.PromiseBroken) == []
    story.pass_time(4000.0)
    assert all(story.job(id).state is State.SUCCEEDED for id in story.people.submitted)
    assert [len(story.recorded(id, ev.StopOrdered)) for id in (slow, fast)] == [1, 1], "none is stopped twice for one job"
    assert [len(story.recorded(id, ev.Placed)) for id in (slow, fast)] == [2, 2]
    assert story.problems() == []


# 3. Parts of gangs that hold what others need, and wait for the rest.


def test_no_part_of_a_gang_is_stranded(story: Story) -> None:
    """Two gangs that each want everything come at once, beside one that is in their way; then a node of a gang goes."""
    story.scripts = {"busy": Script(runs_s=100.0), "gang": Script(runs_s=200.0)}
    busy, gangs = story.submit("busy", 1, 1), [story.submit("gang", 2, 8) for _ in range(2)]
    rebooted = False
    for _ in range(1200):
        story.pass_time(1.0)
        for run in story.loop.world.workload.running.values():
            assert len(run.grant.nodes) == run.task.kind.ask.nodes, "all of it or nothing"
        held = {id for id in gangs if id in story.loop.world.workload.running}
        assert len(held) < 2
        if held and not rebooted and story.job(next(iter(held))).state is State.RUNNING:
            rebooted = True
            story.engine.reboot("sim1")
    assert rebooted
    assert all(story.job(id).state is State.SUCCEEDED for id in [busy, *gangs])
    placed = [event for id in gangs for event in story.recorded(id, ev.Placed)]
    assert len(placed) == 3, "the job of the lost node was placed again, as a whole"
    assert all(len(event.allocation.shares) == 2 for event in placed)
    assert story.problems() == []


# 4. Large jobs starved by small ones.


@pytest.mark.parametrize("known", [True, False], ids=["run times known", "run times unknown"])
@pytest.mark.parametrize("whose", ["the same", "another"])
def test_small_jobs_do_not_starve_a_large_one(known: bool, whose: str) -> None:
    """Small ones come faster than they end, for two days; the large one needs every node, and all that it waits for ends in half
    an hour.
    """
    run_s, came_s = 1800.0, 2 * HOUR_S

    def small(seq: int) -> Arrival:
        return Arrival(f"s{seq}", seq * 100.0, run_s, gang(1, 8), "small", "ann", run_s if known else None)

    large = Arrival(
        "large", came_s, run_s, gang(16, 8), "small" if whose == "the same" else "large", "bob", run_s if known else None
    )
    arrivals = sorted([large, *map(small, range(1728))], key=lambda one: one.submit_s)
    lives = Replay(Trace("stream", tuple(arrivals), gpu_nodes(2, 8)), chosen(Cluster())).run()
    waited_s = lives["large"].started_s - came_s
    assert 0.0 < waited_s <= (0.0 if known else HOUR_S) + 2 * run_s


# 5. "Why is my job pending?", and no answer.


@pytest.mark.parametrize("policy", ["fair-share", "fifo", "easy"])
@pytest.mark.parametrize("seed", range(1, examples(3, 20)))
def test_every_job_that_waits_has_a_reason_and_a_smallest_set_of_changes_that_lets_it_start(
    tmp_path: Path, policy: str, seed: int
) -> None:
    story, rng = Story(Home(tmp_path), seed * 2, policy=policy), random.Random(seed)
    story.scripts = {f"r{n}": Script(runs_s=n * 50.0) for n in range(1, 9)}
    rules, seen = POLICIES[policy], 0
    for _ in range(12):
        for _ in range(rng.randint(1, 3)):
            work, limit_s = rng.choice(["training", "training", "trial"]), rng.choice([None, 300.0, 900.0])
            story.submit(f"r{rng.randint(1, 8)}", rng.choice([1, 1, 2, 3]), rng.choice([1, 4, 8, 9]), work, limit_s)
        story.pass_time(60.0, 5.0)
        now_s = story.loop.clock.now_s()
        snapshot = story.loop.world.snapshot(now_s)
        plan = cycle(snapshot, rules)
        started = {one.job for one in (*plan.placements, *plan.handovers)}
        for position, (id, task) in enumerate(snapshot.waiting.items(), 1):
            seen += 1
            assert story.job(id).reason, "on record"
            changes = remedy(snapshot, rules, id)
            if id in started:
                assert changes == ()
                continue
            told = why(task, snapshot, position, plan.reason(task, now_s), story.job(id).reason)
            assert id in told
            assert (changes is None) == (impossible(task.kind.ask, grouped(snapshot.sites)) is not None)
            if changes is None:
                assert "can never start here" in told
            else:
                assert starts(snapshot, policy, id, changes)
                fewer = (part for size in range(len(changes)) for part in combinations(changes, size))
                assert not any(starts(snapshot, policy, id, part) for part in fewer)
    assert seen > 40


def starts(snapshot: Snapshot, policy: str, id: str, changes: tuple[object, ...]) -> bool:
    after = changed(snapshot, changes)  # type: ignore[arg-type]
    plan = cycle(after, POLICIES[policy])
    return id in {one.job for one in (*plan.placements, *plan.handovers)}
