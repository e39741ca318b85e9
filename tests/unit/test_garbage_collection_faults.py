"""The law of garbage collection detects planted faults within a few histories."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from effort import cases
from garbage_collection_law import Interleavings
from garbage_collection_world import World
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from trainmaster.blobs import garbage_collection
from trainmaster.blobs.garbage_collection import Place, ReferenceChecker, References

Plant = Callable[[pytest.MonkeyPatch], None]
HISTORIES = 1600


def histories() -> None:
    """The law, always on the same histories."""
    rules = settings(
        max_examples=HISTORIES, stateful_step_count=30, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(Interleavings, settings=rules)


class Half:
    """Records that never have what waits, or have it read after the jobs."""

    def __init__(self, world: Any, late: bool, after: int | None) -> None:
        self.world, self.late = world, late
        self.first, self.after = after is None, after or 0
        self.read: list[Any] = []

    def position(self) -> int:
        self.read = list(self.world.jobs() if self.first else self.world.changed(self.after))
        return int(self.world.position())

    def waiting(self, after: int) -> Any:
        return self.world.waiting(after) if self.late else []

    def jobs(self) -> Any:
        return self.read if self.late else self.world.jobs()

    def changed(self, after: int) -> Any:
        return self.read if self.late else self.world.changed(after)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)


def reading(late: bool) -> Plant:
    real = References.update

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(References, "update", lambda self, records: real(self, Half(records, late, self.position)))

    return plant


def forgetting(field: str) -> Plant:
    """What was read of one kind of reference is lost."""
    real = References.update

    def plant(patch: pytest.MonkeyPatch) -> None:
        def update(self: References, records: Any) -> set[str]:
            newer = real(self, records)
            getattr(self, field).clear()
            return newer

        patch.setattr(References, "update", update)

    return plant


def of_a_job(**changes: Any) -> Plant:
    """What one job refers to is less than it is."""
    real = garbage_collection._job_references
    return lambda patch: patch.setattr(garbage_collection, "_job_references", lambda job: replace(real(job), **changes))


def judging(name: str, judged: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setattr(ReferenceChecker, name, judged)


def rules(**changes: Any) -> Plant:
    """The collection does not keep to its rules."""
    real = garbage_collection.collect

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(garbage_collection, "collect", lambda blobs, records, given: real(blobs, records, replace(given, **changes)))

    return plant


def one_look(patch: pytest.MonkeyPatch) -> None:
    """What was marked is removed as it was marked."""
    patch.setattr(ReferenceChecker, "catch_up", lambda checker, fresh: None)


def waiting_once(patch: pytest.MonkeyPatch) -> None:
    real = References.update

    class Quiet:
        def __init__(self, world: Any) -> None:
            self.world = world

        def waiting(self, after: int) -> list[Any]:
            return []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.world, name)

    patch.setattr(References, "update", lambda self, records: real(self, records if self.position is None else Quiet(records)))


def look_before_closing(patch: pytest.MonkeyPatch) -> None:
    """What is newer is read, but not once more when the gate is closed."""
    real = ReferenceChecker.catch_up

    def catch_up(checker: Any, fresh: Any) -> None:
        checker.looks = getattr(checker, "looks", 0) + 1
        if checker.looks % 2:
            real(checker, fresh)

    patch.setattr(ReferenceChecker, "catch_up", catch_up)


def young_trees(patch: pytest.MonkeyPatch) -> None:
    real = garbage_collection.reference_checker
    patch.setattr(garbage_collection, "reference_checker", lambda blobs, records, oldest_s, unknown=False: real(blobs, records, 1e18, unknown))


def finished_artifacts(checker: ReferenceChecker, job: str, digest: str) -> Place:
    of = checker._references.of.get(job)
    return Place("p", "artifacts", of is None or digest in checker._digests(job))


def inherited(checker: ReferenceChecker, job: str, identifier: str) -> Place:
    of = checker._references.of.get(job)
    writing = of is not None and of.live is not None and identifier.startswith(of.live)
    return Place("p", "checkpoints", of is None or writing or identifier in of.checkpoints)


def trees_in_their_turn(*parts: Iterator[Any]) -> list[Any]:
    return sorted(chain(*parts), key=lambda one: one.name)


def spare_of_forks(patch: pytest.MonkeyPatch) -> None:
    """Older checkpoints are given up although other jobs start from them."""
    real = garbage_collection.older

    class Childless:
        def __init__(self, world: World) -> None:
            self.world = world

        def waiting(self, after: int) -> list[Any]:
            return []

        def position(self) -> int:
            return 0

        def jobs(self) -> list[Any]:
            return [replace(job, lineage=None) for job in self.world.jobs()]

    patch.setattr(garbage_collection, "older", lambda records, before_s: real(Childless(records), before_s))


FAULTS: dict[str, Plant] = {
    "what waits is not read": reading(late=False),
    "what waits is read after the jobs, and in neither while control takes it up": reading(late=True),
    "code trees in use are forgotten": forgetting("trees"),
    "objects of trees in use are forgotten": lambda patch: patch.setattr(garbage_collection, "_objects", lambda blobs, tree: []),
    "patches are forgotten": forgetting("diffs"),
    "environments are forgotten": forgetting("environments"),
    "environments of earlier attempts are forgotten": forgetting("again"),
    "what forks start from is forgotten": forgetting("inherited"),
    "what forks start from is looked for among the parent's own alone": judging("_checkpoint", inherited),
    "older checkpoints are given up though another job starts from them": spare_of_forks,
    "what is committed is forgotten": of_a_job(checkpoints=frozenset()),
    "what a live attempt may still commit is forgotten": of_a_job(live=None),
    "artifacts that are not on record yet are forgotten": judging("_artifact", finished_artifacts),
    "artifacts on record are forgotten": lambda patch: patch.setattr(World, "artifacts", lambda world, job: []),
    "jobs that are not known are taken for none": rules(unknown=True),
    "the grace is not kept": rules(grace_s=-1.0),
    "a young tree's old objects are not spared": young_trees,
    "the door stays open": rules(closed=nullcontext),
    "the second check is skipped": one_look,
    "the second look comes before the door is closed": look_before_closing,
    "what was recorded since the first look is not read": lambda patch: patch.setattr(
        World, "changed", lambda world, after: []
    ),
    "what was accepted since the first look is not read": waiting_once,
    "trees that were stored since the first look are forgotten": rules(fresh=tuple),
    "objects go before their trees": lambda patch: patch.setattr(garbage_collection, "chain", trees_in_their_turn),
}


RARE = {  # many histories are played before one shows it
    "what was recorded since the first look is not read", "trees that were stored since the first look are forgotten",
    "what waits is read after the jobs, and in neither while control takes it up",
    "what was accepted since the first look is not read", "the second look comes before the door is closed",
    "what a live attempt may still commit is forgotten", "older checkpoints are given up though another job starts from them",
    "the door stays open", "the second check is skipped",
}  # fmt: skip


@pytest.mark.parametrize("fault", cases([fault for fault in FAULTS if fault not in RARE], list(FAULTS)))
def test_the_law_notices_that(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError):
        histories()
