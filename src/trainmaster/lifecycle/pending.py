"""Effects that state alone calls for: what a crash between commit and act may have left undone.

Law: for any history, `pending` of the final state contains every effect the table gave that is not done yet, so that
nothing is lost with the process. Runs at start-up and at each slow beat; every effect is idempotent.
"""

from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop, grace_s
from trainmaster.model.job import Job, NodePhase, State


def pending(job: Job) -> tuple[Effect, ...]:
    """What is still to be done for `job`, by its state alone; the caller drops what it observed to be done."""
    deletes: tuple[Effect, ...] = tuple(DeleteCheckpoint(job.id, id) for id in job.deleting)
    deletes = (*deletes, *(Clear(job.id, kind) for kind in job.clearing))
    if job.attempt is None or not job.state.live:
        return deletes
    keys = [(job.attempt.key(job.id, i), node) for i, node in enumerate(job.attempt.nodes) if node.phase is not NodePhase.ENDED]
    if job.state is State.STOPPING:
        return (*deletes, *(Stop(key, 0.0 if node.lost else grace_s(job)) for key, node in keys))
    return (*deletes, *(Launch(key) for key, node in keys if node.phase is NodePhase.LAUNCHING))
