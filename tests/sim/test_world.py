"""Seeded histories of crashes, partitions, lost nodes, late and repeated messages."""

import os
import shutil
import tempfile
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from effort import examples

from trainmaster.control import observe
from trainmaster.control.world import World
from trainmaster.home import Home
from trainmaster.lifecycle import machine
from trainmaster.model.events import Submitted
from trainmaster.model.job import Job
from trainmaster.ports import store
from trainmaster.testing.histories.scenario import Scenario

SEEDS = int(os.environ.get("TRAINMASTER_HISTORIES") or examples(12, 2000))
CHUNK = 6  # seeds a test: enough tests to spread over processes, few enough to be cheap


def play(seed: int) -> tuple[list[str], int]:
    """Play one history, on a memory file system if possible. Returns the violations and the number of control's crashes."""
    fast = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() else None))
    try:
        scenario = Scenario(Home(directory), seed)
        scenario.play(jobs=6)
        return scenario.problems(), scenario.crashes
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_law_holds_in_every_history(first: int) -> None:
    """To replay one seed alone: `python -c "from tests.sim.test_world import play; print(play(SEED))"`."""
    played = {seed: play(seed) for seed in range(first, first + CHUNK)}
    assert {seed: problems for seed, (problems, _) in played.items() if problems} == {}
    assert sum(crashes for _, crashes in played.values()) > 0, "control never died: the histories are too tame"


def test_what_is_remembered_of_jobs_that_are_over_comes_from_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal after any number of crashes of control. `OVER_MAX` is 2 here, since a history has few jobs."""
    monkeypatch.setattr(store, "OVER_MAX", 2)
    played = {seed: play(seed)[0] for seed in range(examples(4, 60))}
    assert {seed: problems for seed, problems in played.items() if problems} == {}


def parents_first(world: World, begun: bool = False) -> set[tuple[str, str]]:
    """Forks' checkpoints are ignored."""
    return set()


def never_late(batch: object, lineage: object) -> None:
    """A fork is accepted although its checkpoint is deleted."""


def own_alone(job: Job) -> tuple[str, ...]:
    """A fork starts from nothing, or from its own checkpoints."""
    return tuple(one.id for one in reversed(job.good_checkpoints))


def with_an_older(job: Job) -> tuple[str, ...]:
    """A fork starts from a different checkpoint of its parent than the requested one."""
    own = own_alone(job)
    return own if job.lineage is None else (*own, f"{job.lineage.owner}:0001-00000")


def orphaned(job_id: str, event: Submitted, now_s: float) -> Job:
    """A job's lineage is lost."""
    return replace(machine_submit(job_id, event, now_s), lineage=None)


machine_submit = machine.submit
FAULTS: dict[str, tuple[object, str, object]] = {
    "checkpoints go while a fork needs them": (World, "forked", parents_first),
    "a fork that came too late is let in": (observe, "_deleted_meanwhile", never_late),
    "a fork does not start from its checkpoint": (Job, "resumable", own_alone),
    "a fork starts from another checkpoint": (Job, "resumable", with_an_older),
    "a fork loses its lineage": (machine, "submit", orphaned),
}


RARE = {"a fork that came too late is let in": 31}  # a seed that shows it now: tried first, to find it sooner


@pytest.mark.parametrize("fault", FAULTS)
def test_the_histories_notice_that(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few histories test the law of forks: with the fault, some of them violate it."""
    monkeypatch.setattr(*FAULTS[fault])
    words = ("forked from it", "is to resume from", "starts from", "lost its lineage")
    seeds = chain([RARE.get(fault, 0)], range(examples(200, 2000)))
    problems = (problem for seed in seeds for problem in play(seed)[0])
    assert any(word in problem for problem in problems for word in words)
