"""The tracker in memory keeps the laws that every tracker is held to; the mirror keeps its own whatever dies when."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.model.checkpoints import Artifact
from trainmaster.model.job import Job, State
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.ports.store import JobQuery
from trainmaster.ports.tracker import Cursor, Mirrored, Run, RunStatus, TrackerUnreachableError
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.mirror_state import MirrorFile, SqlMirrorState
from trainmaster.testing import builders
from trainmaster.testing.tracker_contract import MemoryTracker, Rows, TrackerContract
from trainmaster.tracking.follower import Follower, Lag
from trainmaster.tracking.sources import Sources


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


class DiedError(Exception):
    """The mirror process was killed here."""


class Jobs:
    """The event log as a mirror reads it: each change of a job is an event."""

    def __init__(self) -> None:
        self.now: dict[str, Job] = {}
        self.events: list[str] = []

    def set(self, job: Job) -> None:
        self.now[job.id] = job
        self.events.append(job.id)

    def last_seq(self) -> int:
        return len(self.events)

    def changed(self, after_seq: int, limit: int) -> tuple[list[str], int]:
        found = self.events[after_seq : after_seq + limit]
        return list(dict.fromkeys(found)), after_seq + len(found)

    def job(self, job_id: str) -> Job | None:
        return self.now.get(job_id)

    def jobs(self, query: JobQuery) -> list[Job]:
        newest = sorted(self.now.values(), key=lambda job: -job.seq)
        return [job for job in newest if query.before_seq is None or job.seq < query.before_seq][: query.limit]

    def artifacts(self, job_id: str, limit: int, after: str = "") -> list[Artifact]:
        return []


class MortalState(SqlMirrorState):
    """Dies before or after a commit when told to."""

    trouble: Callable[[str], None] = staticmethod(lambda point: None)

    def save(self, cursor: Cursor | None, runs: list[Mirrored] = ()) -> None:  # type: ignore[assignment,override]
        self.trouble("save")
        super().save(cursor, runs)
        self.trouble("saved")


class World:
    """Jobs, their points, a tracker, and a mirror between them that dies and comes back."""

    def __init__(self, directory: Path) -> None:
        self.metrics = SqlMetricStore(directory / "metrics.db")
        self.feed = SqlFeed(directory / "metrics.db")
        self.file = MirrorFile(directory / "mirror.db")
        self.log, self.tracker = Jobs(), MemoryTracker()
        self.now_s, self.attempts = 0.0, dict.fromkeys(("a-1", "b-1"), 1)
        self.troubles: list[tuple[int, type[Exception]]] = []  # after so many calls
        self.reported: dict[tuple[str, str, int], set[float]] = {}
        self.mirror = self.fresh()
        for seq, job in enumerate(self.attempts, 1):
            spec = replace(builders.spec(), project="vision" if job == "a-1" else "speech")
            self.log.set(builders.job(id=job, seq=seq, spec=spec, state=State.RUNNING))

    def fresh(self, takes: str = "") -> Follower:
        self.tracker.trouble = self.trouble
        state = MortalState(self.file.database, "memory")
        state.trouble = self.trouble  # type: ignore[method-assign]
        sources = Sources(self.log, self.feed, "server", f"choice {takes}", lambda project: takes in ("", project), page=7)
        return Follower(self.tracker, state, sources, lambda: self.now_s)

    def trouble(self, point: str) -> None:
        if self.troubles:
            left, kind = self.troubles[0]
            self.troubles[0] = (left - 1, kind)
            if left <= 0:
                self.troubles.pop(0)
                raise kind(f"at {point}")

    def report(self, job: str, steps: list[int | None], value: float, rank: int = 0, metric: str = "loss") -> None:
        attempt = self.attempts[job]
        self.metrics.write([MetricPoint(job, attempt, rank, step, metric, value + (step or 0), 1.0) for step in steps], [])

    def step(self) -> None:
        self.now_s += 1.0
        try:
            self.mirror.step()
        except DiedError:
            self.mirror = self.fresh()
        except TrackerUnreachableError:
            return

    def until_quiet(self) -> None:
        self.troubles.clear()
        self.now_s += 1000.0  # a probe is due, and whatever rests
        for _ in range(400):
            if not self.mirror.step():
                self.now_s += 5.0
                if not self.mirror.step() and not self.mirror.step():
                    return
        raise AssertionError("the mirror does not come to rest")

    def wanted(self, job: str) -> list[tuple[str, int]]:
        page = self.feed.of_job(job, 10**9, None, 10**6)
        return sorted((point.name if point.rank == 0 else f"{point.name}/rank{point.rank}", point.step) for point in page.points)

    def mirrored(self, job: str) -> list[tuple[str, int]]:
        ref = next(ref for ref, run in self.tracker.runs.items() if run.job == job)
        return sorted((point.name, point.step) for point in self.tracker.rows[ref])

    def close(self) -> None:
        for one in (self.metrics, self.feed, self.file):
            one.close()


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        made = World(Path(directory))
        try:
            yield made
        finally:
            made.close()


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
