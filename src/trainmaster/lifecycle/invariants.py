"""Invariants of a job after every transaction. Checked in tests and, because it is cheap, in production."""

from trainmaster.model.job import Job, NodePhase, State


def violations(job: Job) -> list[str]:
    """Descriptions of violated invariants; empty if there are none."""
    found = []
    attempt = job.attempt
    if job.state.live and attempt is None:
        found.append("is live without an attempt")
    if job.state.ended != (job.ended_s is not None):
        found.append(f"is {job.state} and ended_s is {job.ended_s}")
    if (job.state is State.STOPPING) != (job.stopping_for is not None):
        found.append(f"is {job.state} and stops for {job.stopping_for}")
    if attempt is not None:
        if job.state.live and attempt.ended_s is not None:
            found.append("is live in an attempt that has ended")
        if not job.state.live and (attempt.ended_s is None or any(n.phase is not NodePhase.ENDED for n in attempt.nodes)):
            found.append(f"is {job.state} while agents of attempt {attempt.number} have not ended")
        if job.state.live and all(n.phase is NodePhase.ENDED for n in attempt.nodes):
            found.append("has no agent left and no verdict")
        if len(attempt.nodes) != len(attempt.allocation.shares):
            found.append("has another number of agents than of nodes")
    if job.promised is not None and job.state is not State.QUEUED:
        found.append(f"is {job.state} and has nodes reserved for it")
    if job.blocked and job.state is not State.HELD:
        found.append(f"is {job.state} although its start conditions are not met")
    if job.keeps and job.promised is None:
        found.append("keeps nodes that are not reserved for it")
    if job.restarts_program > job.spec.restarts.program or job.restarts_infrastructure > job.spec.restarts.infrastructure:
        found.append("was restarted more often than its restart budgets allow")
    if {c.id for c in job.checkpoints} & set(job.deleting):
        found.append("keeps a checkpoint that it is deleting")
    return [f"{job.id} {sentence}" for sentence in found]
