"""Finds the job that a reference names, and merges inbox rows that control has not processed yet.

Law: the inbox is read before the projections. So a row that is processed in between shows up in at least one of them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from trainmaster.errors import TrainmasterError
from trainmaster.model import redaction
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.ports.store import InboxRow, JobQuery
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import pending_job, pending_reason

_HINTED = 20  # per request: unknown references for which similar ids are searched; each search takes milliseconds
_ALIKE = 10  # ids with the same prefix; more than an error lists
_NEWEST = 200  # pending jobs in which similar ids are searched


class _PendingIndex:
    """Pending jobs as (id, name) in order of submission, indexed so that a lookup does not scan them."""

    def __init__(self, jobs: list[tuple[str, str]]) -> None:
        self._newest, self._order = jobs[-_NEWEST:], {job_id: at for at, (job_id, _) in enumerate(jobs)}
        self._names, self._ids = {name: (job_id, name) for job_id, name in jobs}, sorted(jobs)

    def candidates(self, ref: str, near: bool) -> list[tuple[str, str]]:
        """Pending jobs whose id begins with `ref`, the newest with that name, and the newest of all; in order of submission."""
        at = bisect_left(self._ids, (ref, ""))
        beginning = [job for job in self._ids[at : at + _ALIKE] if job[0].startswith(ref)]
        named = [self._names[ref]] if ref in self._names else []
        newest = self._newest if near else self._newest[-1:]
        return sorted({*newest, *beginning, *named}, key=lambda job: self._order[job[0]])


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job, its reason, and the commands about it that control has not processed yet (`pending`)."""

    job: Job
    reason: str
    pending: tuple[InboxRow, ...] = ()


def find(api: Runtime, ref: str) -> FoundJob:
    """Find a job by id, unique prefix, name, `@last` or `@last-failed`.

    Raises: NotFoundError, ConflictError (several ids have this prefix), UsageError.
    """
    (found,) = find_each(api, [ref])
    if isinstance(found, TrainmasterError):
        raise found
    return found


def find_each(api: Runtime, refs: Sequence[str]) -> list[FoundJob | TrainmasterError]:
    """For each reference what `find` returns or raises. A reference by full id costs a few microseconds."""
    events, rows = api.services.events, api.commands.pending()
    submits = {row.job: row for row in rows if isinstance(row.command, SubmitJob)}
    about: dict[str, list[InboxRow]] = {}
    for row in rows:
        about.setdefault(row.job, []).append(row)
    known = events.jobs_by_id(refs)
    waiting: _PendingIndex | None = None
    found: list[FoundJob | TrainmasterError] = []
    unknown = 0
    for ref in refs:
        job = known.get(ref) or (pending_job(submits[ref]) if ref in submits else None)
        if job is None:
            near = unknown < _HINTED
            waiting = waiting or _PendingIndex([_named(row) for row in submits.values()])
            try:
                job_id = events.resolve(ref, waiting.candidates(ref, near), near)
            except TrainmasterError as error:
                unknown += 1
                # Its traceback refers to this list: a cycle, with a database connection in it, for each unknown reference.
                found.append(error.with_traceback(None))
                continue
            job = events.job(job_id) or pending_job(submits[job_id])
        mine = tuple(about.get(job.id, ()))
        found.append(FoundJob(job, pending_reason(job, mine), mine))
    return found


def page(api: Runtime, query: JobQuery) -> list[FoundJob]:
    """A page of jobs, newest first, including pending ones."""
    rows = api.commands.pending()
    recorded = api.services.events.jobs(query)
    known = {job.id for job in recorded}
    fresh = (pending_job(row) for row in reversed(rows) if isinstance(row.command, SubmitJob) and row.job not in known)
    waiting = islice((job for job in fresh if admits(query, job)), query.limit)
    jobs = sorted([*waiting, *recorded], key=lambda job: job.seq, reverse=True)[: query.limit]
    about: dict[str, list[InboxRow]] = {job.id: [] for job in jobs}
    for row in rows:
        if row.job in about:
            about[row.job].append(row)
    return [FoundJob(job, pending_reason(job, about[job.id])) for job in jobs]


def admits(query: JobQuery, job: Job) -> bool:
    """Whether a job is one of those that a query asks for, whatever `limit` says."""
    spec, tags = job.spec, redaction.values(job.spec.tags)
    return (
        (not query.states or job.state in query.states)
        and query.project in (None, spec.project)
        and query.experiment in (None, spec.experiment)
        and query.owner in (None, job.owner)
        and (query.name is None or _is_named(spec.name, query.name))
        and all(name in tags and value in (None, tags[name]) for name, value in query.tags)
        and (query.before_seq is None or job.seq < query.before_seq)
        and (query.since_s is None or job.created_s >= query.since_s)
        and (query.until_s is None or job.created_s < query.until_s)
    )


def _is_named(name: str, asked: str) -> bool:
    return name.startswith(asked[:-1]) if asked.endswith("*") else name == asked


def _named(row: InboxRow) -> tuple[str, str]:
    """The id and name of a pending submit."""
    assert isinstance(row.command, SubmitJob)
    return row.job, row.command.spec.name
