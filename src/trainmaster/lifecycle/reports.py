"""Transitions for the other reports of agents: kept artifacts, files that were not kept, warnings, run data, progress."""

from dataclasses import replace

from trainmaster.lifecycle.transitions import Change, live_attempt, warned, with_node
from trainmaster.model.events import ArtifactKept, JobEvent, NotKept, ProgressSeen, RunDataLogged, Warned
from trainmaster.model.job import Job, Trouble

_NOT_KEPT_MAX = 5


def count_report(job: Job, node_index: int, report: int) -> Job:
    """The job with the agent's highest report number updated."""
    attempt = live_attempt(job)
    node = attempt.nodes[node_index]
    return replace(job, attempt=with_node(attempt, node_index, replace(node, reports=max(node.reports, report))))


def keep_artifact(job: Job, event: JobEvent, now_s: float) -> Change:
    """Count the report only: artifacts have a projection of their own, since a job may have very many."""
    assert isinstance(event, ArtifactKept)
    return count_report(job, event.node_index, event.report), ()


def note_not_kept(job: Job, event: JobEvent, now_s: float) -> Change:
    """Remember the newest few files that were not kept, each name once. The event log has all of them."""
    assert isinstance(event, NotKept)
    job = count_report(job, event.node_index, event.report)
    about = f"{event.what} {event.name} was not kept: "
    others = [one for one in job.not_kept if not one.startswith(about)]
    return replace(job, not_kept=(*others, about + event.why)[-_NOT_KEPT_MAX:]), ()


def warn(job: Job, event: JobEvent, now_s: float) -> Change:
    """Replace the node's earlier warning on the same topic. An unchanged text keeps its date."""
    assert isinstance(event, Warned)
    if event.node_index >= 0:
        job = count_report(job, event.node_index, event.report)
    if event.data:
        seen = {name: result for name, result in event.data.items() if name in job.spec.data}
        job = replace(job, attempt=replace(live_attempt(job), data_seen=seen))
        if not event.text:  # what an earlier attempt warned of stays true
            return job, ()
    return warned(job, Trouble(event.topic, event.text, event.attempt, event.node_index, now_s)), ()


def log_run_data(job: Job, event: JobEvent, now_s: float) -> Change:
    """Merge parameters and tags. As in MLflow, a parameter keeps its first value, a tag its last."""
    assert isinstance(event, RunDataLogged)
    job = count_report(job, event.node_index, event.report)
    tags = {**job.run_tags, **event.tags}
    return replace(
        job,
        run_params={**event.params, **job.run_params},
        run_tags={name: value for name, value in tags.items() if value is not None},
        run_prefixes={**job.run_prefixes, **event.prefixes},
    ), ()


def see_progress(job: Job, event: JobEvent, now_s: float) -> Change:
    """Remember what the program has shown. Of a gang, node 0 counts."""
    assert isinstance(event, ProgressSeen)
    job = count_report(job, event.node_index, event.report)
    if event.node_index != 0:
        return job, ()
    return replace(job, attempt=replace(live_attempt(job), progress=event.progress)), ()
