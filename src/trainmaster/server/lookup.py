"""Which job is meant, and how it stands once the inbox rows that control has not taken up are joined in.

Law: the inbox is read before the projections, so that a row taken up in between shows up in at least one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainmaster.errors import NotFoundError
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.ports.store import InboxRow, JobQuery
from trainmaster.server.runtime import Runtime
from trainmaster.server.views import pending_job, pending_reason


@dataclass(frozen=True, slots=True)
class Found:
    """A job and what it waits for; `pending` are the commands about it that control has yet to take up."""

    job: Job
    reason: str
    pending: tuple[InboxRow, ...] = ()


def find(desk: Runtime, ref: str) -> Found:
    """The job meant by an id, a unique prefix, a name, `@last` or `@last-failed`. Raises: NotFoundError, UsageError."""
    events = desk.services.events
    rows = desk.services.inbox.pending(events.inbox_cursor())
    submits = [row for row in rows if isinstance(row.command, SubmitJob)]
    job_id = _pending_id(submits, ref) if submits else None
    if job_id is None:
        job_id = events.resolve(ref)
    if job_id is None:
        job_id = _pending_prefix(submits, ref)
    if job_id is None:
        raise NotFoundError(f"there is no job {ref!r}", "`tm ps --all` lists all jobs")
    mine = tuple(row for row in rows if row.job == job_id)
    job = events.job(job_id)
    if job is None:
        job = next((pending_job(row) for row in mine if isinstance(row.command, SubmitJob)), None)
    if job is None:
        raise NotFoundError(f"there is no job {ref!r}", "`tm ps --all` lists all jobs")
    return Found(job, job.reason if job.state.ended else pending_reason(job, mine), mine)


def page(desk: Runtime, query: JobQuery) -> list[Found]:
    """Jobs, newest first, those not taken up yet among them."""
    events = desk.services.events
    rows = desk.services.inbox.pending(events.inbox_cursor())
    recorded = events.jobs(query)
    known = {job.id for job in recorded}
    about: dict[str, list[InboxRow]] = {}
    for row in rows:
        about.setdefault(row.job, []).append(row)
    waiting = [
        pending_job(row)
        for row in rows
        if isinstance(row.command, SubmitJob) and row.job not in known and _matches(row, query)
    ]
    if waiting and query.limit <= len(recorded):
        taken_up = {job.id for job in events.jobs(replace(query, ids=tuple(job.id for job in waiting)))} if False else set()
        waiting = [job for job in waiting if job.id not in taken_up]
    jobs = sorted([*waiting, *recorded], key=lambda job: (job.created_s, job.seq), reverse=True)[: query.limit]
    return [Found(job, job.reason if job.state.ended else pending_reason(job, about.get(job.id, ()))) for job in jobs]
