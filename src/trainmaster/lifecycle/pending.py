"""Derives pending effects from a job's state: what a crash between commit and act may have left undone.

Law: for any history, `pending` of the final state contains every effect of the table that is not done yet. So no effect is
lost with the process. Runs at start-up and at each beat; every effect is idempotent.
"""

from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop, grace_s
from trainmaster.model.job import Job, NodePhase, State


def pending(job: Job) -> tuple[Effect, ...]:
    """Effects still to run for `job`, from its state alone. The caller drops those that it observed to be done."""
    deletes: tuple[Effect, ...] = tuple(DeleteCheckpoint(job.id, id) for id in job.deleting)
    deletes = (*deletes, *(Clear(job.id, kind) for kind in job.clearing))
    if job.attempt is None or not job.state.live:
        return deletes
    keys = [(job.attempt.key(job.id, i), node) for i, node in enumerate(job.attempt.nodes) if node.phase is not NodePhase.ENDED]
    if job.state is State.STOPPING:
        return (*deletes, *(Stop(key, 0.0 if node.lost else grace_s(job)) for key, node in keys))
    return (*deletes, *(Launch(key) for key, node in keys if node.phase is NodePhase.LAUNCHING))
