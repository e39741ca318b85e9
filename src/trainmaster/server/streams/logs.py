"""`GET /jobs/{ref}/logs`: the ranks' output, at once or followed as it is written."""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field

from trainmaster.errors import NotFoundError
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import CURSOR_MAX, NUMBER_MAX, RANKS_MAX, TEXT_MAX, TIME_MAX_S, Ref, Wait
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described, models
from trainmaster.server.streams import rank_logs
from trainmaster.server.views.lookup import find

router = APIRouter(tags=["jobs"])

_LOOK_S = 0.05  # interval at which file sizes are checked for one follower
_LOOKS_PER_S = 200  # limit for all followers together: one check takes half a millisecond
_TAIL_MAX = 100_000
_Rank = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
_TAIL = "only the last lines of each rank, from the newest attempt"
_SINCE = "only lines written at this time or later, in seconds since the epoch; 409 if the times of a log are not known"
_TIMES = "1: with `times` in every chunk: when its lines were written"


@dataclass(slots=True)
class LogQuery:
    """Which part of the output to return."""

    rank: Annotated[list[_Rank] | None, Query(max_length=RANKS_MAX, description="only these; default: all")] = None
    role: Annotated[str | None, Query(max_length=TEXT_MAX, description="the name of a role that runs beside the ranks")] = None
    attempt: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None
    after: Annotated[str, Query(max_length=CURSOR_MAX, description="`cursor` of the last response")] = ""
    wait_s: Wait = 0
    tail: Annotated[int | None, Query(ge=0, le=_TAIL_MAX, description=_TAIL)] = None
    since_s: Annotated[float | None, Query(ge=0, le=TIME_MAX_S, allow_inf_nan=False, description=_SINCE)] = None
    times: Annotated[int, Query(ge=0, le=1, description=_TIMES)] = 0

    def skip(self, api: runtime.Runtime, job: str, cursor: rank_logs.Cursor) -> None:
        """Move a cursor that is at the beginning to the requested `tail` and `since_s`. Runs on a worker thread."""
        if self.after or (self.tail is None and self.since_s is None):
            return
        files = self._files(api, job, 0)
        if self.tail is not None:
            rank_logs.skip_to_tail(files, cursor, self.tail)
        if self.since_s is not None:
            rank_logs.skip_to_time(files, cursor, self.since_s)

    def read(
        self, api: runtime.Runtime, job: str, live: int | None, cursor: rank_logs.Cursor
    ) -> tuple[list[rank_logs.Chunk], bool]:
        """New output, and whether it is the end. `live`: the attempt that still writes, if any. Runs on a worker thread."""
        files = self._files(api, job, cursor.first)
        chunks = rank_logs.read_new(files, cursor, live, follow=self.wait_s > 0, times=bool(self.times))
        if live is not None:
            rank_logs.pass_over(files, cursor, live)
        return chunks, live is None and rank_logs.at_end(files, cursor)

    def _files(self, api: runtime.Runtime, job: str, first: int) -> list[rank_logs.RankFile]:
        """The requested files, of attempts from `first` on."""
        which = rank_logs.LogSelection(self.attempt, None if self.rank is None else frozenset(self.rank), self.role)
        return rank_logs.rank_files(api.services.home, job, first, which)


@router.get("/jobs/{ref}/logs", summary="Read the ranks' output", response_model=None, responses=described.answers(models.Logs))
async def logs(request: Request, ref: Ref, query: Annotated[LogQuery, Depends()]) -> bodies.Json:
    """Without `wait_s`: the logs of all attempts, rank 0 first. With `wait_s`: in the order in which the ranks write.

    Repeat with `cursor` as long as there are chunks (or, when following, until `ended`).
    """
    api = runtime.of(request)
    cursor = rank_logs.Cursor.decode(query.after)
    job = (await asyncio.to_thread(find, api, ref)).job
    if StorageKind.LOGS in job.removed:
        raise NotFoundError(f"the logs of {job.id} were removed to free space", f"see its record: tm show {job.id}")
    job_id = job.id
    await asyncio.to_thread(query.skip, api, job_id, cursor)
    with api.activity.following():
        return bodies.Json(await next_page(api, job_id, query, cursor))


async def next_page(api: runtime.Runtime, job_id: str, query: LogQuery, cursor: rank_logs.Cursor) -> dict[str, Any]:
    """Return new output as soon as there is some, or when `wait_s` is over; moves `cursor`."""
    deadline_s = time.monotonic() + query.wait_s
    while True:
        job = await api.recorded.job(job_id)
        chunks, over = await asyncio.to_thread(query.read, api, job_id, _live(job), cursor)
        if chunks or over or time.monotonic() >= deadline_s or api.notifier.closing:
            return {
                "chunks": [chunk.view() for chunk in chunks],
                "cursor": cursor.encode(),
                "state": job.state.value if job is not None else "queued",
                "ended": over,
            }
        await asyncio.sleep(max(_LOOK_S, api.activity.log_followers / _LOOKS_PER_S))


def _live(job: Job | None) -> int | None:
    """The attempt that still writes; None once the job has ended."""
    if job is not None and job.state.ended:
        return None
    return job.attempt.number if job is not None and job.attempt is not None else 1
