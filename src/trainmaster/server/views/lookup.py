"""Which job is meant, and how it stands once the inbox rows that control has not taken up are joined in.

Law: the inbox is read before the projections, so that a row taken up in between shows up in at least one of them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from trainmaster.errors import TrainmasterError
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.ports.store import InboxRow, JobQuery
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import pending_job, pending_reason

_HINTED = 20  # unknown references of one request for which the nearest ids are looked for: that takes milliseconds each
_ALIKE = 10  # whose ids begin alike: more than an error lists
_NEWEST = 200  # of the waiting jobs, among which it is looked for


class _Waiting:
    """Jobs not taken up yet, (id, name) in order of submission, so that what may be meant is found without a look at all."""

    def __init__(self, jobs: list[tuple[str, str]]) -> None:
        self._newest, self._order = jobs[-_NEWEST:], {job_id: at for at, (job_id, _) in enumerate(jobs)}
        self._names, self._ids = {name: (job_id, name) for job_id, name in jobs}, sorted(jobs)

    def meant(self, ref: str, near: bool) -> list[tuple[str, str]]:
        """Those whose id begins so, the newest of that name, and the newest of all (many, to find what is `near`); in order."""
        at = bisect_left(self._ids, (ref, ""))
        beginning = [job for job in self._ids[at : at + _ALIKE] if job[0].startswith(ref)]
        named = [self._names[ref]] if ref in self._names else []
        newest = self._newest if near else self._newest[-1:]
        return sorted({*newest, *beginning, *named}, key=lambda job: self._order[job[0]])


@dataclass(frozen=True, slots=True)
class Found:
    """A job and what it waits for; `pending` are the commands about it that control has yet to take up."""

    job: Job
    reason: str
    pending: tuple[InboxRow, ...] = ()


def find(desk: Runtime, ref: str) -> Found:
    """The job meant by an id, a unique prefix, a name, `@last` or `@last-failed`.

    Raises: NotFoundError, ConflictError (several ids begin so), UsageError.
    """
    (found,) = find_each(desk, [ref])
    if isinstance(found, TrainmasterError):
        raise found
    return found


def find_each(desk: Runtime, refs: Sequence[str]) -> list[Found | TrainmasterError]:
    """What `find` answers or raises for each; those named by their whole ids cost some microseconds each."""
    events, rows = desk.services.events, desk.waiting.rows()
    submits = {row.job: row for row in rows if isinstance(row.command, SubmitJob)}
    about: dict[str, list[InboxRow]] = {}
    for row in rows:
        about.setdefault(row.job, []).append(row)
    known = events.jobs_by_id(refs)
    waiting: _Waiting | None = None
    found: list[Found | TrainmasterError] = []
    unknown = 0
    for ref in refs:
        job = known.get(ref) or (pending_job(submits[ref]) if ref in submits else None)
        if job is None:
            near = unknown < _HINTED
            waiting = waiting or _Waiting([_named(row) for row in submits.values()])
            try:
                job_id = events.resolve(ref, waiting.meant(ref, near), near)
            except TrainmasterError as error:
                unknown += 1
                found.append(error)
                continue
            job = events.job(job_id) or pending_job(submits[job_id])
        mine = tuple(about.get(job.id, ()))
        found.append(Found(job, pending_reason(job, mine), mine))
    return found


def page(desk: Runtime, query: JobQuery) -> list[Found]:
    """Jobs, newest first, those not taken up yet among them."""
    rows = desk.waiting.rows()
    recorded = desk.services.events.jobs(query)
    known = {job.id for job in recorded}
    fresh = (pending_job(row) for row in reversed(rows) if isinstance(row.command, SubmitJob) and row.job not in known)
    waiting = islice((job for job in fresh if _asked_for(job, query)), query.limit)
    jobs = sorted([*waiting, *recorded], key=lambda job: job.seq, reverse=True)[: query.limit]
    about: dict[str, list[InboxRow]] = {job.id: [] for job in jobs}
    for row in rows:
        if row.job in about:
            about[row.job].append(row)
    return [Found(job, pending_reason(job, about[job.id])) for job in jobs]


def _named(row: InboxRow) -> tuple[str, str]:
    """A waiting submit's id and name."""
    assert isinstance(row.command, SubmitJob)
    return row.job, row.command.spec.name


def _asked_for(job: Job, query: JobQuery) -> bool:
    """Whether a job not recorded yet belongs to a page."""
    return (
        (not query.states or job.state in query.states)
        and query.project in (None, job.spec.project)
        and query.experiment in (None, job.spec.experiment)
        and (query.before_seq is None or job.seq < query.before_seq)
    )
