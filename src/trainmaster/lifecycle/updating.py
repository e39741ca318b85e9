"""Changes of a job's spec after its submission. What a state does not allow any more is left as it is."""

from dataclasses import replace

from trainmaster.lifecycle.transitions import Change
from trainmaster.model.events import JobEvent, Updated
from trainmaster.model.job import Job, State
from trainmaster.model.spec import JobSpec

WAITING = (State.HELD, State.QUEUED)


def update(job: Job, event: JobEvent, now_s: float) -> Change:
    """Change the tags in any state, priority and time limit until it has ended, and the class while it waits."""
    assert isinstance(event, Updated)
    return replace(job, spec=updated(job.spec, job.state, event)), ()


def updated(spec: JobSpec, state: State, event: Updated) -> JobSpec:
    """The spec of a job in this state after the event."""
    tags = {**spec.tags, **event.tags}
    spec = replace(spec, tags={name: value for name, value in tags.items() if value is not None})
    if state.ended:
        return spec
    if event.priority is not None:
        spec = replace(spec, priority=event.priority)
    if event.no_time_limit or event.time_limit_s is not None:
        spec = replace(spec, time_limit_s=event.time_limit_s)
    return replace(spec, work=event.work) if event.work is not None and state in WAITING else spec
