"""What a mirror reads: the event log, the metric points, and the selection of projects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainmaster.model.checkpoints import Artifact
from trainmaster.model.job import Job
from trainmaster.ports.store import JobQuery
from trainmaster.ports.tracker import Feed, Mirrored, Run, Tracker
from trainmaster.tracking.runs import run_of

PAGE = 5000  # points read and sent per batch


class Log(Protocol):
    """The event log, as read by a mirror."""

    def last_seq(self) -> int: ...

    def changed(self, after_seq: int, limit: int) -> tuple[list[str], int]: ...

    def job(self, job_id: str) -> Job | None: ...

    def jobs(self, query: JobQuery) -> list[Job]: ...

    def artifacts(self, job_id: str, limit: int, after: str = "") -> list[Artifact]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a mirror. `takes` selects projects, and `choice` identifies that selection.

    `server`: what the id of a run is made of besides the job's name, by the number of the job (`compose.run_server`).
    """

    log: Log
    feed: Feed
    server: Callable[[int], str]
    choice: str
    takes: Callable[[str], bool]
    copy_artifacts: Callable[[Tracker, Mirrored, Callable[[Mirrored], Mirrored]], Mirrored] = lambda tracker, run, keep: run
    page: int = PAGE

    def run_of(self, job: Job) -> Run:
        """The run of a job."""
        return run_of(job, self.server(job.seq))
