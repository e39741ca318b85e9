"""The tracker in memory keeps the laws that every tracker is held to; the mirror keeps its own whatever dies when."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mirror_world import DiedError, world

from trainmaster.model.job import State
from trainmaster.ports.tracker import Run, RunStatus, TrackerUnreachableError
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.testing.tracker_contract import MemoryTracker, Rows, TrackerContract
from trainmaster.tracking.follower import Lag


class TestMemoryTracker(TrackerContract):
    @pytest.fixture
    def tracker(self) -> MemoryTracker:
        return MemoryTracker()

    @pytest.fixture
    def read(self, tracker: MemoryTracker) -> Callable[[str], Rows]:
        def read(ref: str) -> Rows:
            rows: Rows = {}
            for point in tracker.rows[ref]:
                rows.setdefault(point.name, []).append((point.step, point.value))
            return rows

        return read

    @pytest.fixture
    def described(self, tracker: MemoryTracker) -> Callable[[str], tuple[dict[str, str], str]]:
        return lambda ref: (dict(tracker.runs[ref].params), tracker.runs[ref].status.value)

    @pytest.fixture
    def wipe(self, tracker: MemoryTracker) -> Callable[[], None]:
        return tracker.wipe


JOBS = st.sampled_from(("a-1", "b-1"))
ACTIONS = st.one_of(
    st.tuples(st.just("report"), JOBS, st.integers(0, 30), st.integers(1, 12), st.integers(0, 1)),
    st.tuples(st.just("unstepped"), JOBS, st.integers(1, 4)),
    st.tuples(st.just("restart"), JOBS),
    st.tuples(st.just("die"), st.integers(0, 12)),
    st.tuples(st.just("down"), st.integers(0, 12)),
    st.tuples(st.just("mirror"), st.integers(1, 6)),
    st.tuples(st.just("wipe")),
    st.tuples(st.just("bad"), JOBS),
    st.tuples(st.just("well"), JOBS),
)


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=25))
def test_no_step_twice_and_none_missing(actions: list[tuple]) -> None:  # type: ignore[type-arg]
    with world() as made:
        for count, (what, *given_) in enumerate(actions):
            match what:
                case "report":
                    job, first, many, rank = given_
                    made.report(job, list(range(first, first + many)), count * 1000.0, rank)
                case "unstepped":
                    made.report(given_[0], [None] * given_[1], count * 1000.0)
                case "restart":
                    made.attempts[given_[0]] += 1
                case "die" | "down":
                    made.troubles.append((given_[0], DiedError if what == "die" else TrackerUnreachableError))
                case "mirror":
                    for _ in range(given_[0]):
                        made.step()
                case "wipe":
                    made.tracker.wipe()
                case "bad":
                    made.tracker.bad.add(given_[0])
                case "well":
                    made.tracker.bad.discard(given_[0])
        made.tracker.bad.clear()
        made.until_quiet()
        assert {job: made.mirrored(job) for job in made.attempts} == {job: made.wanted(job) for job in made.attempts}
        assert len(made.tracker.runs) == len(made.attempts)


def test_a_killed_jobs_run_is_killed_and_its_late_points_arrive() -> None:
    with world() as made:
        made.report("a-1", [1, 2], 0.5)
        made.until_quiet()
        made.log.set(replace(made.log.now["a-1"], state=State.CANCELLED, ended_s=50.0))
        made.until_quiet()
        run = next(run for run in made.tracker.runs.values() if run.job == "a-1")
        assert (run.status, run.ended_s) == (RunStatus.KILLED, 50.0)
        made.report("a-1", [3], 0.5)
        made.until_quiet()
        assert made.mirrored("a-1") == [("loss", 1), ("loss", 2), ("loss", 3)]


def test_a_rolled_back_jobs_steps_keep_their_first_values() -> None:
    with world() as made:
        made.report("a-1", [1, 2, 3], 0.0)
        made.until_quiet()
        made.attempts["a-1"] = 2
        made.report("a-1", [2, 3, 4], 100.0)
        made.until_quiet()
        ref = next(ref for ref, run in made.tracker.runs.items() if run.job == "a-1")
        assert [(point.step, point.value) for point in made.tracker.rows[ref]] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 104.0)]
        assert made.metrics.series("a-1", "loss") == [(1, 1.0), (2, 102.0), (3, 103.0), (4, 104.0)]


def test_a_project_that_is_mirrored_later_brings_its_history() -> None:
    with world() as made:
        made.mirror = made.fresh("vision")
        for job in made.attempts:
            made.report(job, [1, 2], 0.5)
        made.until_quiet()
        assert [run.job for run in made.tracker.runs.values()] == ["a-1"]
        made.mirror = made.fresh()
        made.until_quiet()
        assert [made.mirrored(job) for job in made.attempts] == [[("loss", 1), ("loss", 2)]] * 2


@pytest.mark.parametrize("metric", ["loss", "acc@1"])
def test_a_mirror_that_lost_its_memory_finds_its_runs(tmp_path: Path, metric: str) -> None:
    """Of a metric that the tracker names otherwise, each step was sent again, with another value."""
    with world() as made:
        made.report("a-1", [1, 2, 3], 0.0, metric=metric)
        made.until_quiet()
        made.attempts["a-1"] = 2
        made.report("a-1", [2, 3, 4], 100.0, metric=metric)
        made.file.close()
        made.file = MirrorFile(tmp_path / "another.db")
        made.mirror = made.fresh()
        made.until_quiet()
        assert made.mirrored("a-1") == [(made.tracker.named(metric), step) for step in (1, 2, 3, 4)]
        assert made.tracker.made == 2


@pytest.mark.parametrize("forgets", [False, True])
def test_values_before_the_first_step_take_no_step_of_their_metric(tmp_path: Path, forgets: bool) -> None:
    """They are at 0, 1, …, and the values of these steps were never sent: what was measured before the training stood there."""
    with world() as made:
        made.report("a-1", [None, None], 9.0)
        made.until_quiet()
        made.report("a-1", [0, 1, 2], 0.5)
        if forgets:
            made.file.close()
            made.file = MirrorFile(tmp_path / "another.db")
            made.mirror = made.fresh()
        made.until_quiet()
        (rows,) = (made.tracker.rows[ref] for ref, run in made.tracker.runs.items() if run.job == "a-1")
        assert [(point.step, point.value) for point in rows] == [(0, 9.0), (1, 9.0), (0, 0.5), (1, 1.5), (2, 2.5)]


def test_a_metric_of_a_rank_and_one_with_a_ranks_name_are_two() -> None:
    with world() as made:
        made.report("a-1", [1], 0.0, rank=1)
        made.report("a-1", [1], 0.5, metric="loss/rank1")
        made.until_quiet()
        assert made.mirrored("a-1") == [("loss/rank1", 1), ("loss/rank1/rank0", 1)]


def test_the_end_is_told_after_the_last_points() -> None:
    with world() as made:
        held: list[int] = []
        tell = made.tracker.tell

        def listening(ref: str, run: Run, before: Run | None) -> None:
            if run.status.ended:
                held.append(len(made.tracker.rows[ref]))
            tell(ref, run, before)

        made.tracker.tell = listening  # type: ignore[method-assign]
        made.report("a-1", [1, 2], 0.5)
        made.until_quiet()
        made.report("a-1", list(range(3, 40)), 0.5)
        made.log.set(replace(made.log.now["a-1"], state=State.SUCCEEDED, ended_s=50.0))
        made.step()
        made.report("a-1", [40], 0.5)  # of the agent's last request, a moment after its last report
        assert held == []
        made.until_quiet()
        assert held == [40]
        assert next(run for run in made.tracker.runs.values() if run.job == "a-1").status is RunStatus.FINISHED


@pytest.mark.parametrize("begun", [True, False])
def test_a_run_that_the_tracker_falls_over_holds_up_no_other(begun: bool) -> None:
    with world() as made:
        if begun:
            made.report("a-1", [1, 2], 0.5)
            made.until_quiet()
        made.tracker.bad.add("a-1")
        for steps in ([3, 4, 5], [6, 7]):
            for job in made.attempts:
                made.report(job, steps, 0.5)
            made.until_quiet()
        assert made.mirrored("b-1") == [("loss", step) for step in (3, 4, 5, 6, 7)]
        assert made.mirror.troubled() == {"a-1": "fell over the run of a-1"}
        assert made.mirror.lag().points == 0
        made.mirror = made.fresh()  # what was put off is not forgotten
        made.until_quiet()
        made.tracker.bad.clear()
        made.until_quiet()
        assert made.mirrored("a-1") == made.wanted("a-1")
        assert made.mirror.troubled() == {}


def test_a_run_that_the_tracker_does_not_take_holds_up_no_other() -> None:
    """T3: one experiment was deleted in MLflow, and nothing was mirrored any more."""
    with world() as made:
        made.tracker.refused.add("a-1")
        for job in made.attempts:
            made.report(job, [1, 2], 0.5)
        made.until_quiet()
        assert made.mirrored("b-1") == [("loss", 1), ("loss", 2)]
        assert made.tracker.runs.keys() == {"run1"}
        known = made.mirror._runs.of("a-1")
        assert known is not None
        assert known.fault == "the experiment of a-1 was deleted"
        assert made.mirror.lag() == Lag(0, 0.0, runs=0, refused=1)
        made.mirror = made.fresh()
        made.until_quiet()
        assert made.mirror.lag().refused == 1


def test_a_mirror_that_has_sent_nothing_yet_is_behind() -> None:
    with world() as made:
        for job in made.attempts:
            made.report(job, [1, 2], 0.5)
        made.mirror._begin_following()
        assert made.mirror.lag() == Lag(0, 0.0, runs=2)
        made.until_quiet()
        assert made.mirror.lag() == Lag(0, 0.0)
        made.report("a-1", [3], 0.5)
        made.log.set(replace(made.log.now["a-1"], state=State.SUCCEEDED, ended_s=50.0))
        made.step()
        assert made.mirror.lag() == Lag(0, 0.0, runs=1)  # its end is not told yet


def test_points_behind_one_that_is_not_sent_count_as_waiting() -> None:
    """A late value without a step comes first: `tm doctor` said that the tracker was up to date."""
    with world() as made:
        made.report("a-1", [5], 0.5)
        made.until_quiet()
        made.report("a-1", [None], 0.5)
        made.report("a-1", [6, 7], 0.5)
        assert made.mirror.lag().points > 0
        made.until_quiet()
        assert made.mirror.lag().points == 0


def test_a_bad_run_is_tried_less_and_less_often_and_what_heals_one_may_heal_all() -> None:
    with world() as made:
        tries: list[str] = []
        made.until_quiet()
        made.tracker.bad |= {"a-1", "b-1"}
        made.tracker.trouble = tries.append
        for job in made.attempts:
            made.report(job, [1], 0.5)
        for _ in range(4000):
            made.step()
        assert 2 * 12 < tries.count("begin") < 2 * 30
        made.tracker.bad.clear()
        made.now_s += 300.0
        for _ in range(20):
            made.step()
        assert [made.mirrored(job) for job in made.attempts] == [[("loss", 1)]] * 2
