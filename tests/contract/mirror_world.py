"""A mirror, what it reads and the tracker that it writes to, each of which may fail."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainmaster.model.checkpoints import Artifact
from trainmaster.model.job import Job, State
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.ports.store import JobQuery
from trainmaster.ports.tracker import Cursor, Mirrored, RunTroubledError, Tracker, TrackerUnreachableError
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.mirror_state import MirrorFile, SqlMirrorState
from trainmaster.testing import builders
from trainmaster.testing.tracker_contract import MemoryTracker
from trainmaster.tracking.follower import Follower
from trainmaster.tracking.sources import Sources


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
        self.metrics_db = directory / "metrics.db"
        self.metrics, self.feed = SqlMetricStore(self.metrics_db), SqlFeed(self.metrics_db)
        self.file = MirrorFile(directory / "mirror.db")
        self.log, self.tracker = Jobs(), MemoryTracker()
        self.now_s, self.attempts = 0.0, dict.fromkeys(("a-1", "b-1"), 1)
        self.troubles: list[tuple[int, type[Exception]]] = []  # after so many calls
        self.reported: dict[tuple[str, str, int], set[float]] = {}
        self.unstored: set[str] = set()  # jobs whose artifacts the store does not give out
        self.mirror = self.fresh()
        for seq, job in enumerate(self.attempts, 1):
            spec = replace(builders.spec(), project="vision" if job == "a-1" else "speech")
            self.log.set(builders.job(id=job, seq=seq, spec=spec, state=State.RUNNING))

    def fresh(self, takes: str = "") -> Follower:
        self.tracker.trouble = self.trouble
        state = MortalState(self.file.database, "memory")
        state.trouble = self.trouble  # type: ignore[method-assign]
        choice = f"choice {takes}"
        takes_it = lambda project: takes in ("", project)  # noqa: E731
        sources = Sources(self.log, self.feed, lambda seq: "server", choice, takes_it, self.copied, page=7)
        return Follower(self.tracker, state, sources, lambda: self.now_s)

    def trouble(self, point: str) -> None:
        if self.troubles:
            left, kind = self.troubles[0]
            self.troubles[0] = (left - 1, kind)
            if left <= 0:
                self.troubles.pop(0)
                raise kind(f"at {point}")

    def copied(self, tracker: Tracker, run: Mirrored, keep: Callable[[Mirrored], Mirrored]) -> Mirrored:
        if run.job in self.unstored:
            raise RunTroubledError("the store does not answer")
        return run

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
        page = self.feed.of_job(job, self.feed.last_seq(), None, 10**6)
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
