"""Start conditions of a submit, and what a job with such conditions waits for at the moment."""

import time
from collections.abc import Iterator, Mapping, Sequence

from trainmaster.errors import TrainmasterError, UsageError
from trainmaster.model.job import Job, State
from trainmaster.model.options.start_conditions import Dependency, StartConditions, When
from trainmaster.model.spec import JobSpec
from trainmaster.ports.store import JobQuery
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import JOBS_MAX, NAMES_MAX, TEXT_MAX, TIME_MAX_S
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.lookup import FoundJob, find, find_each

_START = frozenset(("after", "begin_s", "begin_in_s", "array", "at_most"))
_LIVE = tuple(state for state in State if state.live)
_COUNTED_MAX = 20_000
_NAMED_MAX = 8
_ELSE = {When.OK: "if it fails or is cancelled", When.ANY: "", When.FAILED: "if it succeeds or is cancelled"}


def conditions(api: Runtime, asked: object, user: str, spec: JobSpec) -> StartConditions | None:
    """The start conditions in a request and its spec. An array belongs to its user.

    Raises: UsageError, NotFoundError (no such job).
    """
    if asked is None:
        return of_spec(spec)
    if not isinstance(asked, dict):
        raise UsageError("start must be an object with after, begin_s or begin_in_s, array, at_most")
    bodies.reject_unknown(asked, _START, "start")
    at_most, array = asked.get("at_most") or 0, asked.get("array") or ""
    begin_s, in_s = _seconds(asked, "begin_s"), _seconds(asked, "begin_in_s")
    if begin_s is not None and in_s is not None:
        raise UsageError("start.begin_s and start.begin_in_s contradict each other")
    if isinstance(at_most, bool) or not isinstance(at_most, int) or not 0 <= at_most <= JOBS_MAX:
        raise UsageError(f"start.at_most must be a whole number from 0 to {JOBS_MAX}")
    if not isinstance(array, str) or len(array) > TEXT_MAX or (at_most and not array):
        raise UsageError("start.at_most needs the name of an array in start.array")
    after = asked.get("after") or []
    if not isinstance(after, list) or len(after) > NAMES_MAX:
        raise UsageError(f"start.after must be a list of at most {NAMES_MAX} jobs")
    dependencies = tuple(dict.fromkeys(_dependency(api, one) for one in after))
    relative = in_s is not None
    begin_s = time.time() + in_s if in_s is not None else begin_s
    array = f"{user}:{array}" if array else ""
    return StartConditions(dependencies, begin_s, array, at_most, relative, spec.max_running or 0) or None


def of_spec(spec: JobSpec) -> StartConditions | None:
    """The start conditions of a job that has those of its spec only."""
    return StartConditions(max_running=spec.max_running or 0) or None


def _seconds(asked: Mapping[str, object], name: str) -> float | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIME_MAX_S:
        raise UsageError(f"start.{name} must be a number of seconds from 0 to {TIME_MAX_S:.0f}")
    return float(value)


def _dependency(api: Runtime, asked: object) -> Dependency:
    if not isinstance(asked, Mapping) or not isinstance(asked.get("job"), str):
        raise UsageError("each of start.after must be an object with job and when")
    bodies.reject_unknown(asked, frozenset(("job", "when")), "start.after")
    when = asked.get("when", When.OK.value)
    if when not in list(When):
        raise UsageError(f"start.after: {when!r} is none of {', '.join(When)}")
    return Dependency(find(api, asked["job"]).job.id, When(when))


def outlook(api: Runtime, job: Job) -> str:
    """What a blocked job waits for: how the other jobs are, and what happens if they end otherwise."""
    after = job.start.after if job.start is not None else ()
    parents = find_each(api, [one.job for one in after])
    told = [_parent(one, found) for one, found in zip(after, parents, strict=True)]
    return " ".join([f"{job.reason}.", *told, *_others(job, running(api, job))])


def running(api: Runtime, job: Job) -> list[Job]:
    """The jobs that count for its `max_running`, as control counts them (`control/start_gate.py`); none without it."""
    if job.start is None or not job.start.max_running:
        return []
    found = api.services.events.jobs(JobQuery((State.QUEUED, *_LIVE), owner=job.owner, limit=_COUNTED_MAX))
    return [one for one in reversed(found) if one.counts_as_running and one.id != job.id]


def has_turn(api: Runtime, job: Job) -> bool:
    """Whether a job that is not submitted yet waits for nothing but `max_running`, and has not to wait for that."""
    start = job.start
    return start is not None and start == of_spec(job.spec) and not job.hold and len(running(api, job)) < start.max_running


def _others(job: Job, counted: Sequence[Job]) -> Iterator[str]:
    """How many jobs of its owner run, and which."""
    if counted:
        more = f" and {len(counted) - _NAMED_MAX:,} more" if len(counted) > _NAMED_MAX else ""
        verb, begins = ("run", "are") if len(counted) > 1 else ("runs", "is")
        names = ", ".join(one.id for one in counted[:_NAMED_MAX])
        yield f"Now {len(counted):,} of {job.owner}'s jobs {verb} or {begins} about to: {names}{more}."


def _parent(one: Dependency, found: FoundJob | TrainmasterError) -> str:
    if not isinstance(found, FoundJob):
        return f"{one.job} is not known here."
    lost = f"; {_ELSE[one.when]}, this job is cancelled" if _ELSE[one.when] else ""
    return f"{one.job} is {found.job.state.value}{lost}."

