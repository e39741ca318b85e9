"""Formats jobs, attempts, nodes and events as JSON values. Pure, and the only place that defines these formats."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trainmaster.model import redaction
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.commands import CancelJob, HoldJob, ReleaseJob, SubmitJob
from trainmaster.model.job import Action, Attempt, Job, NodePhase, State
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Node, NodeShare
from trainmaster.model.options.placeholders import unread
from trainmaster.model.options.start_conditions import waiting_text
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.ports.store import InboxRow
from trainmaster.recovery import resumption
from trainmaster.scheduling.model.words import length
from trainmaster.server.views import job_notes
from trainmaster.wire.names import STALLED, SYSTEM

View = dict[str, Any]
Points = Mapping[str, tuple[int | None, float, float]]  # metric name -> step, value, time_s

WAITING = "waiting for the control process"
_SOON_S = 30.0  # a start that takes longer shows its duration
_NODES_SHOWN = 8  # nodes listed that have not started
_AFTER = {Action.RESTART: "restarted", Action.REQUEUE: "requeued"}


def pending_job(row: InboxRow) -> Job:
    """A submit that control has not processed yet, as the job that it will become."""
    command = row.command
    assert isinstance(command, SubmitJob)
    start = command.start or None
    waits = WAITING if start is None else waiting_text(start, command.member or command.origin.user)
    state = State.QUEUED if command.hold is None and start is None else State.HELD
    return Job(
        id=row.job,
        seq=row.seq,
        spec=command.spec,
        origin=command.origin,
        code=command.code,
        data=command.data,
        lineage=command.lineage,
        urgent=command.urgent,
        member=command.member,
        created_s=row.received_s,
        state=state,
        reason=command.hold or waits,
        start=start,
        blocked=start is not None,
        hold=command.hold or "",
        queued_s=row.received_s,
    )


def pending_reason(job: Job, rows: Sequence[InboxRow]) -> str:
    """The job's reason, or a pending command that will change it."""
    reason = job.reason
    if job.state.ended:
        return reason
    for row in rows:
        match row.command:
            case CancelJob():
                reason = "cancel requested"
            case HoldJob(reason=why):
                reason = f"hold requested: {why}" if why else "hold requested"
            case ReleaseJob():
                reason = "release requested"
    return reason


def job_view(job: Job, points: Points, reason: str) -> View:
    """A job as a list entry."""
    attempt, (began_s, ended_s) = job.attempt, job.span
    return {
        "id": job.id,
        "seq": job.seq,
        "name": job.spec.name,
        "member": job.owner,
        "project": job.spec.project,
        "experiment": job.spec.experiment,
        "state": job.state.value,
        "reason": reason,
        "class": job.spec.work,
        "priority": job.spec.priority,
        "attempt": attempt.number if attempt is not None else 0,
        "created_s": job.created_s,
        "started_s": began_s,
        "ended_s": ended_s,
        "nodes": _node_names(attempt),
        "command": redaction.shown_line(job.spec),
        "step": last_step(job, points),
        "metrics": {name: value for name, (_, value, _) in sorted(points.items()) if not name.startswith(SYSTEM)},
        "primary": job.spec.metrics.primary,
        "stalled": stalled(job),
        "restarts": {"program": job.restarts_program, "infrastructure": job.restarts_infrastructure},
        "tags": redaction.values(job.spec.tags),
    }


def all_attempts(job: Job, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The recorded attempts of a job, in order, with the newest as the job has it."""
    known = {attempt.number: attempt for attempt in attempts}
    if job.attempt is not None:
        known[job.attempt.number] = job.attempt
    return [known[number] for number in sorted(known)]


def job_detail(job: Job, attempts: Sequence[Attempt], points: Points, reason: str, work: Sequence[str]) -> View:
    """A job in full detail."""
    numbered = all_attempts(job, attempts)
    seen = resumption.evidence(numbered)
    standing = {
        name: {"step": step, "value": value, "time_s": time_s} for name, (step, value, time_s) in sorted(points.items())
    }
    return {
        **job_view(job, points, reason),
        "spec": asdict(redaction.shown(job.spec)),
        "origin": asdict(redaction.shown_origin(job.origin)),
        "code": asdict(job.code),
        "data": data_view(job),
        "lineage": lineage_view(job.lineage),
        "start": asdict(job.start) if job.start is not None else None,
        "urgent": asdict(job.urgent) if job.urgent is not None else None,
        "failure": asdict(job.failure) if job.failure is not None else None,
        "time_limit_s": job.spec.time_limit_s,
        "attempts": [attempt_view(job, attempt, seen.get(attempt.number)) for attempt in numbered],
        "checkpoints": [checkpoint_view(checkpoint) for checkpoint in job.checkpoints],
        "metrics": {name: view for name, view in standing.items() if not name.startswith(SYSTEM)},
        "system": {name[len(SYSTEM) :]: view for name, view in standing.items() if name.startswith(SYSTEM)},
        "unread_params": list(unread(job.spec, job.origin)),
        "logged": {"params": redaction.logged(job.run_params, job.spec), "tags": redaction.logged(job.run_tags, job.spec)},
        "work": [] if StorageKind.WORK in job.removed else list(work),
        "removed": list(job.removed),
        "troubles": trouble_views(job),
        "notes": job_notes.all_of(job, numbered, seen),
    }


def system_view(system: View, averages: Mapping[str, tuple[float, float]]) -> View:
    """`system` of `job_detail` with (mean, highest value) of what `averages` has, by the name of the metric."""
    summed = {name[len(SYSTEM) :]: {"mean": mean, "highest": highest} for name, (mean, highest) in averages.items()}
    return {name: {**point, **summed.get(name, {})} for name, point in system.items()}


def trouble_views(job: Job) -> list[View]:
    """The job's warnings; `node` is null for those from control."""
    return [
        {
            "topic": one.topic,
            "text": one.text,
            "attempt": one.attempt or None,
            "node": one.node_index if one.node_index >= 0 else None,
            "since_s": one.since_s,
        }
        for one in job.troubles
    ]


def stalled(job: Job) -> str | None:
    """The warning about a running job that may hang, as reported by its first node; None if there is none."""
    told = sorted((one for one in job.troubles if one.topic == STALLED), key=lambda one: one.node_index)
    return told[0].text if told and job.state is State.RUNNING else None


def data_view(job: Job) -> list[View]:
    """The versions of the job's data at submit."""
    views = [{**asdict(version), "uri": redaction.text(version.uri)} for version in job.data]
    return [{name: value for name, value in view.items() if name not in ("stamp", "listing")} for view in views]


def lineage_view(lineage: Lineage | None) -> dict[str, Any] | None:
    """The job it was made from."""
    if lineage is None:
        return None
    point = lineage.checkpoint
    return {
        "relation": lineage.relation.value,
        "job": lineage.job,
        "checkpoint": None if point is None else point.id,
        "step": None if point is None else point.step,
        "approximate": point is not None and point.approximate,
        "owner": lineage.owner,
    }


def attempt_state(job: Job, attempt: Attempt) -> str:
    """starting, running or stopping while it lives; then its result."""
    if attempt.verdict is not None:
        return _AFTER.get(attempt.verdict.action, attempt.verdict.state.value)
    if attempt.stopping_s is not None:
        return "stopping"
    current = job.attempt is not None and job.attempt.number == attempt.number
    if current and job.state is State.STOPPING:
        return "stopping"
    return "starting" if attempt.started_s is None else "running"


def attempt_view(job: Job, attempt: Attempt, seen: resumption.Evidence | None) -> View:
    """One attempt as JSON. `seen`: whether it went on from what it was given."""
    failure, verdict = attempt.failure, attempt.verdict
    succeeded = verdict is not None and verdict.state is State.SUCCEEDED
    began_s, ended_s = attempt.span
    return {
        "number": attempt.number,
        "state": attempt_state(job, attempt),
        "cause": failure.cause.value if failure is not None else None,
        "message": failure.message if failure is not None else None,
        "exit_code": failure.exit_code if failure is not None else (0 if succeeded else None),
        "signal": failure.signal if failure is not None else None,
        "rank": failure.rank if failure is not None else None,
        "placed_s": attempt.placed_s,
        "started_s": began_s,
        "ended_s": ended_s,
        "ran_s": attempt.ran_s,
        "resumed_from": attempt.restored,
        "resumed_from_step": attempt.resumed_from_step,
        "resumed_about": attempt.resumed_about,
        "resumed_saved": asdict(attempt.resumed_saved) if attempt.resumed_saved is not None else None,
        "resumed_evidence": seen.word.value if seen is not None else None,
        "resumed_because": list(seen.because) if seen is not None else [],
        "nodes": _node_names(attempt),
        "devices": [list(share.devices) for share in attempt.allocation.shares],
        "choice": attempt.allocation.choice if job.spec.resources.choices else None,
        "verdict": (
            {
                "action": verdict.action.value,
                "reason": verdict.reason,
                "delay_s": verdict.delay_s,
                "ledger": verdict.ledger.value,
            }
            if verdict is not None
            else None
        ),
        "last_lines": list(failure.last_lines) if failure is not None else [],
    }


def checkpoint_view(checkpoint: Checkpoint) -> View:
    """One committed checkpoint as JSON."""
    return {
        "id": checkpoint.id,
        "name": checkpoint.name,
        "step": checkpoint.step,
        "bytes": checkpoint.bytes,
        "committed_s": checkpoint.committed_s,
        "good": checkpoint.good,
        "approximate": checkpoint.approximate,
        "at_least": checkpoint.at_least,
        "after_s": checkpoint.after_s,
        "attempt": checkpoint.attempt,
    }


def last_step(job: Job, points: Points) -> int | None:
    """How far the attempt came: a metric may count epochs, and MLflow counts its samples of the machine."""
    # Trackers use step 0 for values without a step, so a step 0 after others (such as a final accuracy) is no restart.
    attempt = job.attempt
    began_s = (attempt.started_s if attempt is not None else None) or 0.0
    told = [point for name, point in points.items() if not job.counts_apart(name) and not name.startswith(SYSTEM)]
    if attempt is not None and attempt.number > 1 and attempt.restored is None:
        told = [point for point in told if point[2] >= began_s]  # it was given no checkpoint: earlier steps are not its own
    furthest = max(((bool(step), time_s >= began_s, step) for step, _, time_s in told if step is not None), default=None)
    if furthest is not None:
        return furthest[2]
    outcomes = [node.outcome for node in attempt.nodes] if attempt is not None else []
    return max((o.last_step for o in outcomes if o is not None and o.last_step is not None), default=None)


def starting_text(job: Job, reason: str, now_s: float) -> str:
    """`starting since 4 min: building the environment from requirements.txt; its limit for this is 30 min`."""
    since_s = now_s - job.attempt.placed_s if job.attempt is not None else 0.0
    if since_s < _SOON_S:
        return reason
    doing = _not_begun(job) if reason == "starting" else f": {reason}"
    whole_s = since_s - since_s % (60.0 if since_s >= 60.0 else 1.0)
    return f"starting since {length(whole_s)}{doing}; its limit for this is {length(job.spec.start_limit_s)}"


def _not_begun(job: Job) -> str:
    """For a gang with some nodes running: the nodes that it waits for."""
    nodes = job.attempt.nodes if job.attempt is not None else ()
    late = [f"n{index}" for index, node in enumerate(nodes) if node.phase is NodePhase.LAUNCHING]
    if not late or len(late) == len(nodes):
        return ""
    return f": {len(nodes) - len(late)} of {len(nodes)} nodes have begun, not yet {', '.join(late[:_NODES_SHOWN])}" + (
        "" if len(late) <= _NODES_SHOWN else ", …"
    )


def node_view(node: Node, jobs: Sequence[Job]) -> View:
    """A node as JSON, with the capacity that the live `jobs` leave free."""
    shares = [
        (job.id, share)
        for job in jobs
        if job.attempt is not None and job.state.live
        for share in job.attempt.allocation.shares
        if share.node == node.name
    ]
    left = {device.index: 1.0 for device in node.devices}
    for _, share in shares:
        for index in share.devices:
            left[index] = left.get(index, 0.0) - share.held(index)
    return {
        "name": node.name,
        "state": node.state.value,
        "state_reason": node.state_reason,
        "pool": node.pool,
        "host": node.host,
        "cpus": node.cpus,
        "memory_bytes": node.memory_bytes,
        "devices": [{"index": d.index, "kind": d.kind, "stand_in": d.stand_in} for d in node.devices],
        "counted": dict(node.counted),
        "virtual": node.virtual,
        "free": {
            "cpus": max(0.0, node.cpus - sum(share.cpus for _, share in shares)),
            "memory_bytes": max(0, node.memory_bytes - sum(share.memory_bytes for _, share in shares)),
            "devices": [d.index for d in node.devices if left[d.index] == 1],  # entirely free
            "gpus": round(sum(max(0.0, left[d.index]) for d in node.devices), 3),
            "counted": _left(node, [share for _, share in shares]),
        },
        "jobs": sorted({job for job, _ in shares}),
    }


def _left(node: Node, shares: Sequence[NodeShare]) -> dict[str, float]:
    """The remaining amounts of other counted resources on a node."""
    left = dict(node.counted)
    for share in shares:
        for name, amount in share.counted:
            left[name] = max(0.0, left.get(name, 0.0) - amount)
    return left


def _node_names(attempt: Attempt | None) -> list[str]:
    return [share.node for share in attempt.allocation.shares] if attempt is not None else []
