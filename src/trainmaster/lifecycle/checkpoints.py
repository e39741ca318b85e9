"""Transitions for checkpoints: commit, retention, deletion."""

from dataclasses import replace

from trainmaster.lifecycle.effects import DeleteCheckpoint
from trainmaster.lifecycle.reports import count_report
from trainmaster.lifecycle.transitions import Change, found_bad, live_attempt
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.events import CheckpointDeleted, CheckpointsDamaged, CheckpointsGivenUp, CheckpointStaged, JobEvent
from trainmaster.model.job import Attempt, Job, NodePhase


def stage_checkpoint(job: Job, event: JobEvent, now_s: float) -> Change:
    """Add a part. The last missing part commits the checkpoint; retention then gives up the oldest ones beyond `keep`.

    Laws: a corrupt checkpoint does not count toward `keep`. No checkpoint, corrupt and unreadable ones included, is given up
    before one of a later step is committed and proven: a false report about it then costs disk space only. No checkpoint that
    a node may still restore is given up before that node has reported what it restored. An incomplete checkpoint of an
    earlier step is given up too: every node is past it.
    """
    assert isinstance(event, CheckpointStaged)
    job = _seen_saving(count_report(job, event.part.node_index, event.report), event)
    staged = next((c for c in job.staged if c.id == event.id), None)
    if staged is None:
        staged = Checkpoint(
            event.id, event.step, event.attempt, (), event.parts_expected, event.approximate,
            at_least=event.at_least, after_s=event.after_s, progress=event.progress, name=event.name,
        )  # fmt: skip
    parts = (*(p for p in staged.parts if p.node_index != event.part.node_index), event.part)
    whole = replace(staged, parts=tuple(sorted(parts, key=lambda p: p.node_index)))
    others = tuple(c for c in job.staged if c.id != event.id)
    if len(parts) < event.parts_expected:
        return replace(job, staged=(*others, whole)), ()
    checkpoints = (*(c for c in job.checkpoints if c.id != event.id), replace(whole, committed_s=now_s))
    kept = _kept(checkpoints, job.spec.checkpoint.keep) | _needed(live_attempt(job))
    overtaken = [c for c in others if _overtaken(c, whole)]
    others = tuple(c for c in others if c not in overtaken)
    given_up = (*(c.id for c in checkpoints if c.id not in kept), *(c.id for c in overtaken))
    job = replace(
        job, staged=others, checkpoints=tuple(c for c in checkpoints if c.id in kept), deleting=(*job.deleting, *given_up)
    )
    return job, tuple(DeleteCheckpoint(job.id, id) for id in given_up)


def _seen_saving(job: Job, event: CheckpointStaged) -> Job:
    """Record what it shows of the attempt: the program's progress, and the step of the first checkpoint that it saved.

    Advice of an earlier attempt on the checkpoint pattern is over: the agent repeats what still holds.
    """
    attempt = live_attempt(job)
    exact = None if event.approximate else event.step
    saved = exact if attempt.saved_step is None else attempt.saved_step
    troubles = tuple(one for one in job.troubles if one.topic != "checkpoint pattern" or one.attempt == event.attempt)
    seen = replace(attempt, saved_step=saved, progress=event.progress or attempt.progress)
    return replace(job, attempt=seen, troubles=troubles)


def _kept(checkpoints: tuple[Checkpoint, ...], keep: int) -> set[str]:
    """Ids of the checkpoints to keep: the newest `keep` good ones, and all that no later proven checkpoint supersedes.

    Of a name that was written again for the same step, the last counts: parts of one file took the places of whole ones.
    """
    good = [c for c in checkpoints if c.good]
    last = {(c.name, c.step): c.id for c in good}
    newest = [c.id for c in good if not _named(c) or last[c.name, c.step] == c.id][-max(1, keep) :]
    proven = [(index, c) for index, c in enumerate(checkpoints) if c.proven]
    ahead = {
        c.id for index, c in enumerate(checkpoints) if not any(_later(other, c, behind > index) for behind, other in proven)
    }
    return {*newest, *ahead}


def _named(checkpoint: Checkpoint) -> bool:
    """Whether its name and step tell it from others."""
    return bool(checkpoint.name) and checkpoint.step is not None and not checkpoint.approximate


def _needed(attempt: Attempt) -> set[str]:
    """Ids of the checkpoints that a node of this attempt may be reading now."""
    return set(attempt.resume) if any(node.phase is NodePhase.LAUNCHING for node in attempt.nodes) else set()


def _later(one: Checkpoint, other: Checkpoint, committed_later: bool) -> bool:
    """Whether `one` is later than `other`: by step, or by commit order if a step is unknown or both are equal."""
    if one.step is None or other.step is None or one.step == other.step:
        return committed_later
    return one.step > other.step


def _overtaken(staged: Checkpoint, whole: Checkpoint) -> bool:
    if staged.step is None or whole.step is None:
        return False
    return staged.step < whole.step and staged.parts_expected <= whole.parts_expected


def delete_checkpoint(job: Job, event: JobEvent, now_s: float) -> Change:
    """The bytes are deleted. In logs of earlier versions, which kept fewer, the job may still list the checkpoint."""
    assert isinstance(event, CheckpointDeleted)
    deleting = tuple(id for id in job.deleting if id != event.id)
    return replace(job, deleting=deleting, checkpoints=tuple(c for c in job.checkpoints if c.id != event.id)), ()


def spare(job: Job) -> tuple[Checkpoint, ...]:
    """Checkpoints that an ended job does not need: all but the last good one. None for a job that is not over."""
    if not job.state.ended:
        return ()
    last = job.good_checkpoints[-1:]
    return tuple(checkpoint for checkpoint in job.checkpoints if checkpoint not in last)


def damage_checkpoints(job: Job, event: JobEvent, now_s: float) -> Change:
    """Mark checkpoints as bad that a verification of the store found damaged. What was marked before stays as it is."""
    assert isinstance(event, CheckpointsDamaged)
    return found_bad(job, tuple(one.id for one in job.good_checkpoints if one.id in event.ids), now_s), ()


def give_up_checkpoints(job: Job, event: JobEvent, now_s: float) -> Change:
    """Give up older checkpoints on request. Law: the last good one stays, and the bytes stay while a fork needs them."""
    assert isinstance(event, CheckpointsGivenUp)
    going = tuple(checkpoint.id for checkpoint in spare(job) if checkpoint.id in event.ids)
    kept = tuple(checkpoint for checkpoint in job.checkpoints if checkpoint.id not in going)
    changed = replace(job, checkpoints=kept, deleting=(*job.deleting, *going))
    return changed, tuple(DeleteCheckpoint(job.id, id) for id in going)
