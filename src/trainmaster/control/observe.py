"""Turns observations into events: commands and reports from the inbox, and what the engine sees."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.reports import event_of, number_of, without_secrets
from trainmaster.control.world import Batch, World
from trainmaster.model import commands as cmd
from trainmaster.model import events as ev
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import CONTROL, Attempt, Job, NodePhase, Outcome
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Node, NodeState
from trainmaster.ports.engine import Observation, Phase
from trainmaster.ports.store import InboxRow
from trainmaster.scheduling.moments import BEAT_S

LOST_GRACE_S = 60.0  # time for an engine to end an agent that it still sees on a node declared lost
_PASSED_OVER = "reports passed over"
_WORD_MAX = 500  # characters
_LATE_S = 1.0  # after a start, its record is late
_NUMBERED = (ev.CheckpointStaged, ev.ArtifactKept, ev.NotKept, ev.Warned, ev.RunDataLogged, ev.ProgressSeen)


@dataclass(slots=True)
class EngineWatch:
    """When the engine is observed, and when pending effects are repeated."""

    probe: bool = True  # set from outside when an agent's end was noticed: observe in the next tick
    next_beat_s: float = 0.0
    next_inventory_s: float = 0.0
    _looking: "Future[dict[AgentKey, Observation]] | None" = None
    _owed: bool = False  # pending effects are to be repeated after the next observation

    def is_due(self) -> bool:
        """Whether an observation should begin, and none is in progress."""
        return self.probe and self._looking is None

    def look(self, runner: EffectRunner, world: World, now_s: float) -> Mapping[AgentKey, Observation] | None:
        """Start an observation at each beat, or when an agent's end was noticed. Returns its result once it is complete.

        Law: a result that is returned was complete before this tick read the inbox. For a key that was launched meanwhile,
        the result proves neither that it is absent nor that it is gone.
        """
        if self._looking is None and (now_s >= self.next_beat_s or self.probe):
            self.probe = False
            keys = world.live_keys()
            if not keys:
                return {}
            self._looking = runner.look(keys)
        if self._looking is None or not self._looking.done():
            return None
        seen, self._looking = self._looking.result(), None
        launched = runner.launched
        return {key: one for key, one in seen.items() if key not in launched or one.phase not in (Phase.ABSENT, Phase.GONE)}

    def beat(self, now_s: float) -> bool:
        """Whether a beat is due, which owes a repetition; if so, wait for the next one."""
        if now_s < self.next_beat_s:
            return False
        self.next_beat_s, self._owed = now_s + BEAT_S, True
        return True

    def repeats(self, looked: bool, beat: bool) -> bool:
        """Whether to repeat pending effects: at each beat, and again with the first observation after it."""
        if not self._owed or not (looked or beat):
            return False
        self._owed = not looked
        return True


def take(batch: Batch, row: InboxRow) -> str | None:
    """Record what one inbox row asks or reports. Returns a log message if it was dropped."""
    match row.command:
        case cmd.SubmitJob(job, spec, origin, code, hold, data, lineage, urgent, member, start):
            hold = _deleted_meanwhile(batch, lineage) or hold
            made = (spec, origin, code, row.received_s, hold, data, lineage, urgent, member, start)
            batch.record(job, ev.Submitted(row.seq, *made))
        case cmd.CancelJob(job, by, reason, grace_s):
            batch.record(job, ev.CancelRequested(by, reason, grace_s))
        case cmd.HoldJob(job, by, reason):
            batch.record(job, ev.Held(by, reason))
        case cmd.ReleaseJob(job, by):
            batch.record(job, ev.Released(by))
        case cmd.UpdateJob(job, by, priority, time_limit_s, no_time_limit, work, tags):
            batch.recall(job)
            batch.record(job, ev.Updated(by, priority, time_limit_s, no_time_limit, work, tags))
        case cmd.SetNodeState(name, state, by, reason):
            set_node_state(batch, name, ev.NodeStateSet(name, state, by, reason))
        case cmd.ConfigureCluster(cluster, by):
            if cluster != batch.world.rules:
                batch.record_cluster(ev.ClusterConfigured(cluster, by))
        case cmd.TakeNote(job, by, text, project, experiment):
            batch.note(job or None, ev.Noted(by, text, row.received_s, project, experiment))
        case cmd.GiveUpCheckpoints(job, by, ids):
            batch.recall(job)
            batch.record(job, ev.CheckpointsGivenUp(by, ids))
        case cmd.FoundDamaged(job, ids):
            batch.recall(job)
            batch.record(job, ev.CheckpointsDamaged(ids))
        case cmd.GiveUpBytes(job, by, kinds):
            batch.recall(job)
            batch.record(job, ev.BytesGivenUp(by, kinds))
        case cmd.RecordCommand(job, attempt, by, command, node_index, rank, role):
            batch.record(job, ev.CommandRun(attempt, by, command, node_index, rank, role))
        case cmd.RecordForecast(job, waits_s):
            batch.record(job, ev.Foreseen(row.received_s, waits_s))
        case cmd.WarnJob(job, topic, text):
            batch.recall(job)
            known = batch.world.jobs.get(job)
            if known is not None:
                batch.record(job, ev.Warned(known.attempt.number if known.attempt else 0, CONTROL, topic, text))
        case cmd.AgentReport(key, report):
            return take_report(batch, AgentKey.parse(key), report, max(0.0, batch.now_s - row.received_s))
        case cmd.Unreadable(kind, fault):
            return f"inbox row {row.seq}: skipped a {kind} that this version cannot read: {fault}"
    return None


def _deleted_meanwhile(batch: Batch, lineage: Lineage | None) -> str | None:
    """Why a fork cannot start: its checkpoint was given up after the api checked it and before this row was processed."""
    if lineage is None or lineage.checkpoint is None:
        return None
    parent = batch.known(lineage.owner or lineage.job)
    if parent is None:
        return None
    id = lineage.checkpoint.id
    if any(checkpoint.id == id for checkpoint in parent.checkpoints):
        return None  # its bytes stay while the fork needs them (`World.forked`)
    if id in parent.deleting and (parent.id, id) in batch.world.forked(begun=True):
        return None  # another fork has kept the bytes; otherwise they may be deleted already
    step = f" of {lineage.checkpoint.place}" if lineage.checkpoint.place else ""
    return f"the checkpoint{step} of {parent.id} was removed just before; cancel this job and fork from a later checkpoint"


def take_report(batch: Batch, key: AgentKey, report: Mapping[str, object], waited_s: float = 0.0) -> str | None:
    """Record an agent's report unless it is stale or a repetition. An unreadable one becomes a warning, and a log message.

    `waited_s`: for how long the report has waited for this.
    """
    job = batch.world.jobs.get(key.job)
    if job is None or job.attempt is None or job.attempt.number != key.attempt:
        return None
    if key.node_index >= len(job.attempt.nodes):
        return f"{key}: no such node in this attempt"
    try:
        event = event_of(key, report)
    except (KeyError, ValueError) as error:
        return _pass_over(batch, key, f"a malformed report of kind {report.get('kind')!r} ({type(error).__name__}: {error})")
    if event is None:
        return _pass_over(batch, key, f"a report of kind {report.get('kind')!r}, which only another version knows")
    numbered = isinstance(event, _NUMBERED)
    own = isinstance(event, ev.Warned) and event.report == 0  # written by the api about an agent's reports
    if numbered and not own and number_of(report) <= job.attempt.nodes[key.node_index].reports:
        return None
    if isinstance(event, ev.CheckpointStaged) and event.step is None and event.after_s is not None:
        event = replace(event, at_least=job.attempt.resumed_from_step)
    if isinstance(event, ev.NodeStarted):
        ago_s = event.ago_s + waited_s
        event = replace(event, ago_s=ago_s if ago_s > _LATE_S else 0.0)
    if isinstance(event, ev.NodeEnded):
        event = replace(event, outcome=event.outcome.recorded_later(waited_s))
    _record(batch, key, event)
    return None


def _record(batch: Batch, key: AgentKey, event: ev.JobEvent) -> None:
    """Record what an agent did. A checkpoint of another job that it found damaged is so on that job's record, too."""
    known = batch.world.jobs.get(key.job)
    batch.record(key.job, event if known is None else without_secrets(event, known.spec))
    bad = event.bad if isinstance(event, ev.NodeStarted) else event.outcome.bad if isinstance(event, ev.NodeEnded) else ()
    job = batch.world.jobs.get(key.job)
    lineage = job.lineage if job is not None and bad else None
    if lineage is None or lineage.checkpoint is None or lineage.inherited not in bad:
        return
    owner, id = lineage.owner or lineage.job, lineage.checkpoint.id
    other = batch.known(owner)
    if other is not None and any(one.id == id and one.good for one in other.checkpoints):
        batch.recall(owner)
        batch.record(owner, ev.CheckpointsDamaged((id,)))


def _pass_over(batch: Batch, key: AgentKey, what: str) -> str:
    """Warn that a report was not recorded. Identical warnings become one event."""
    word = f"skipped a report of the agent on node {key.node_index}: {what}"[:_WORD_MAX]
    if not any((trouble.topic, trouble.text) == (_PASSED_OVER, word) for trouble in batch.world.jobs[key.job].troubles):
        batch.record(key.job, ev.Warned(key.attempt, CONTROL, _PASSED_OVER, word))
    return f"{key}: {word}"


def set_node_state(batch: Batch, name: str, event: ev.NodeStateSet) -> None:
    """Drain, resume or declare a node lost. A lost node loses all its agents; `take_observation` ends the unseen ones."""
    if name not in batch.world.nodes:
        return
    batch.record_cluster(event)
    if event.state is not NodeState.LOST:
        return
    for job_id in list(batch.world.workload.running):
        attempt = batch.world.jobs[job_id].attempt
        assert attempt is not None
        for index, share in enumerate(attempt.allocation.shares):
            if share.node == name:
                said = f"{name} was declared lost by {event.by}" + (f": {event.reason}" if event.reason else "")
                batch.record(job_id, ev.NodeLost(attempt.number, index, said, declared=True))


def take_inventory(batch: Batch, inventory: Iterable[Node]) -> None:
    """Record nodes that are new, changed, back or gone. A node that is gone gets no new work; its current work continues."""
    present = {node.name: node for node in inventory}
    for name, node in present.items():
        known = batch.world.nodes.get(name)
        back = known is not None and known.state is NodeState.GONE
        if known is None or back or replace(known, state=node.state, state_reason=node.state_reason) != node:
            batch.record_cluster(ev.NodeSeen(node))
    for name, known in list(batch.world.nodes.items()):
        if known.state is NodeState.UP and name not in present:
            batch.record_cluster(ev.NodeStateSet(name, NodeState.GONE, "the inventory"))


def take_observation(batch: Batch, key: AgentKey, seen: Observation) -> str | None:
    """Record what the engine proves about one agent of a live attempt. An unknown phase changes nothing.

    Returns a log message about reports that were dropped.
    """
    job = batch.world.jobs.get(key.job)
    if job is None or job.attempt is None or job.attempt.number != key.attempt or not job.state.live:
        return None
    node = job.attempt.nodes[key.node_index]
    if node.phase is NodePhase.ENDED:
        return None
    word = None
    host = job.attempt.allocation.shares[key.node_index].node
    _warn_unreadable(batch, job, key, seen)
    if _ended_by_declaration(batch, job.attempt, key.node_index, seen.phase):
        outcome = Outcome(lost=True, declared_lost=node.declared_lost)
        _record(batch, key, ev.NodeEnded(key.attempt, key.node_index, outcome))
        return None
    evidence = seen.evidence or f"the agent on {host} is gone without an exit record"
    match seen.phase:
        case Phase.ENDED if seen.outcome is not None:
            word = _take_reports(batch, key, seen)
            _record(batch, key, ev.NodeEnded(key.attempt, key.node_index, seen.outcome))
        case Phase.LOST:
            if not node.lost:
                batch.record(key.job, ev.NodeLost(key.attempt, key.node_index, evidence))
        case Phase.GONE:
            word = _take_reports(batch, key, seen)
            if not node.lost:
                batch.record(key.job, ev.NodeLost(key.attempt, key.node_index, evidence))
            outcome = seen.outcome or Outcome(lost=True)
            _record(batch, key, ev.NodeEnded(key.attempt, key.node_index, outcome))
        case Phase.ABSENT if node.phase is NodePhase.RUNNING and not node.lost:
            batch.record(key.job, ev.NodeLost(key.attempt, key.node_index, f"the agent's records on {host} are gone"))
        case _:
            pass
    return word


def _warn_unreadable(batch: Batch, job: Job, key: AgentKey, seen: Observation) -> None:
    """Warn that an agent's state cannot be read, and withdraw the warning when it can be."""
    host = "" if job.attempt is None else f" on {job.attempt.allocation.shares[key.node_index].node}"
    topic = f"engine n{key.node_index}"
    told = any(one.topic == topic and one.node_index == CONTROL for one in job.troubles)
    if seen.unreadable != told:
        text = f"the state of its agent{host} cannot be read: {seen.evidence}; it is checked again" if seen.unreadable else ""
        batch.record(key.job, ev.Warned(key.attempt, CONTROL, topic, text))


def _ended_by_declaration(batch: Batch, attempt: Attempt, index: int, phase: Phase) -> bool:
    """Whether a person's declaration that the node is lost ends this agent's part. Proof by the engine takes precedence.

    The engine stops an agent that it still sees, and has `LOST_GRACE_S` for that: a process that the kernel cannot end must not
    keep the job for ever.
    """
    if attempt.nodes[index].declared_lost is None:
        return False
    if phase in (Phase.UNKNOWN, Phase.ABSENT):
        return True
    over_s = (attempt.stopping_s if attempt.stopping_s is not None else batch.now_s) + LOST_GRACE_S
    return phase in (Phase.RUNNING, Phase.LOST) and batch.now_s >= over_s


def _take_reports(batch: Batch, key: AgentKey, seen: Observation) -> str | None:
    """Record the reports that an agent left on disk. Returns log messages about those that were dropped."""
    words = [take_report(batch, key, report) for report in seen.reports]
    return "; ".join(word for word in words if word is not None) or None
