"""Formats events as sentences and as JSON. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from trainmaster.model import events as ev
from trainmaster.model import redaction
from trainmaster.model.job import Outcome
from trainmaster.model.progress import Progress
from trainmaster.model.spec import JobSpec
from trainmaster.ports.store import Recorded, Unread
from trainmaster.scheduling.model.words import length, summed
from trainmaster.wire.data import CHANGED, SAME
from trainmaster.wire.names import FILES, MODEL, OWN, RUN, STALLED


def event_view(row: Recorded | Unread, spec: JobSpec | None = None) -> dict[str, Any]:
    """One event as JSON, of a job with `spec`. An event that this version cannot read is shown as unreadable."""
    if isinstance(row, Unread):
        text = f"an event that this version of the server cannot read: {row.fault}"
        return {"seq": row.seq, "now_s": row.now_s, "type": row.type, "attempt": row.attempt, "text": text, "data": {}}
    event = _shown(row.event, spec)
    return {
        "seq": row.seq,
        "now_s": row.now_s,
        "type": type(event).__name__,
        "attempt": row.attempt,
        "text": sentence(event),
        "data": asdict(event),
    }


def _shown(event: ev.Event, spec: JobSpec | None) -> ev.Event:
    """The event with credentials masked."""
    match event:
        case ev.Submitted(spec=given, origin=origin, data=data):
            versions = tuple(replace(version, uri=redaction.text(version.uri)) for version in data)
            return replace(event, spec=redaction.shown(given), origin=redaction.shown_origin(origin), data=versions)
        case ev.CommandRun(command=command):
            return replace(event, command=redaction.line(command))
        case ev.Updated(tags=tags):
            return replace(event, tags=redaction.values(tags))
        case ev.RunDataLogged(params=params, tags=tags):
            told = redaction.values if spec is None else partial(redaction.logged, spec=spec)
            return replace(event, params=told(params), tags=told(tags))
    return event


def sentence(event: ev.Event) -> str:
    """One line that says what happened."""
    match event:
        case ev.Submitted(origin=origin, urgent=urgent, member=member):
            said = f"submitted by {member or origin.user}" if member or origin.user else "submitted"
            return said if urgent is None else f"{said}, urgent ({urgent.by}: {urgent.reason})"
        case ev.Held(by, reason):
            return _because(f"held by {by}", reason)
        case ev.Released(by):
            return f"released by {by}"
        case ev.Updated(by=by):
            return f"{by} changed {', '.join(_changes(event))}"
        case ev.StartAllowed(reason):
            return f"may start: {reason}"
        case ev.StartRefused(_, reason):
            return f"cancelled: {reason}"
        case ev.CancelRequested(by, reason, grace_s):
            within = "" if grace_s is None else f", {grace_s:g} s allowed"
            return _because(f"cancel requested by {by}{within}", reason)
        case ev.Waited(reason):
            return reason
        case ev.Promised(_, victims, shrunk):
            return " and ".join(_handing_over([id for id in victims if id not in shrunk], shrunk))
        case ev.PromiseBroken(reason):
            return reason
        case ev.Foreseen(_, waits_s):
            return f"estimated to wait {min(waits_s):.0f} to {max(waits_s):.0f} s more"
        case ev.CommandRun(_, by, command, index, rank, role):
            beside = f"rank {rank}" if rank is not None else f"role {role}" if role is not None else f"n{index}"
            return f"{by} ran beside {beside}: {command}"
        case ev.StopOrdered(stop_for, reason):
            return _because(f"stopping ({stop_for.value})", reason)
        case ev.ArtifactKept(artifact=artifact):
            return f"kept {artifact.path} ({artifact.bytes} bytes)"
        case ev.NotKept(what=what, name=name, why=why):
            return f"{what} {name} was not kept: {why}"
        case ev.Warned(_, index, topic, text, data=data):
            teller = "" if index < 0 else f"n{index}: "
            if data and not text:
                return teller + "; ".join(_data_seen(data))
            return teller + (text or ("its ranks go on" if topic == STALLED else f"over: trouble with {topic}"))
        case ev.RunDataLogged():
            return _logged(event)
        case ev.ProgressSeen(_, _, progress):
            return _progress(progress)
        case ev.CheckpointDeleted(id):
            return f"deleted checkpoint {id}"
        case ev.CheckpointsGivenUp(by, ids):
            return f"{by} gave up {len(ids)} older checkpoint{'' if len(ids) == 1 else 's'}: {', '.join(ids)}"
        case ev.CheckpointsDamaged(ids):
            return f"the store holds other bytes than their digests say: {', '.join(ids)}"
        case ev.BytesGivenUp(by, kinds):
            return f"{by} gave up its {', '.join(kinds)}"
        case ev.BytesRemoved(kind, size):
            return f"removed its {kind}" + (f" ({size:,} bytes)" if size else "")
        case ev.NodeSeen(node):
            return f"node {node.name} seen: {node.cpus:g} CPUs, {len(node.devices)} devices"
        case ev.NodeStateSet(name, state, by, reason):
            return _because(f"node {name} set {state.value} by {by}", reason)
        case ev.ClusterConfigured(cluster, by):
            return f"{by} applied a cluster configuration: {len(cluster.pools)} pools, {len(cluster.projects)} projects"
        case ev.ClockSet(by_s):
            return f"the system clock was set {'forward' if by_s > 0 else 'back'} by {abs(by_s):.0f} s; deadlines were adjusted"
        case ev.Planned(placed=placed):
            return f"placed {', '.join(placed)}" if placed else "planned"
    return _attempt_sentence(event)


def _data_seen(data: Mapping[str, str]) -> Iterator[str]:
    """For example `data as at the submit: train, valid`."""
    told = {SAME: "data as at the submit", CHANGED: "data changed since the submit"}
    for result in dict.fromkeys(data.values()):
        names = ", ".join(name for name, one in data.items() if one == result)
        yield f"{told.get(result, 'data that may have changed since the submit')}: {names}"


def _changes(event: ev.Updated) -> Iterator[str]:
    """For example `priority to 10`, `time limit to 2 h`, `tag owner=ada`."""
    if event.priority is not None:
        yield f"priority to {event.priority}"
    if event.no_time_limit:
        yield "time limit to none"
    elif event.time_limit_s is not None:
        yield f"time limit to {length(event.time_limit_s)}"
    if event.work is not None:
        yield f"class to {event.work}"
    for name, value in event.tags.items():
        yield f"tag {name} to nothing" if value is None else f"tag {name}={value}"


def _handing_over(stopped: Sequence[str], shrunk: Sequence[str]) -> Iterator[str]:
    if stopped:
        yield f"{', '.join(stopped)} make{'s' * (len(stopped) == 1)} way for it"
    if shrunk:
        give, go = ("gives", "goes") if len(shrunk) == 1 else ("give", "go")
        yield f"{', '.join(shrunk)} {give} back nodes for it and {go} on with fewer"


def _names(noun: str, values: Mapping[str, object]) -> str:
    """For example `3 parameters (lr, batch, …)`; empty for none."""
    shown = ", ".join(list(values)[:4]) + (", …" if len(values) > 4 else "")
    return f"{len(values)} {noun}{'' if len(values) == 1 else 's'} ({shown})" if values else ""


def _logged(event: ev.RunDataLogged) -> str:
    """For example `logged 1 parameter (lr) and 1 further run (fold-1)`."""
    of = {one: {name: kind for name, kind in event.prefixes.items() if kind == one} for one in (RUN, MODEL, OWN, FILES)}
    told = [_names("parameter", event.params), _names("tag", event.tags), _names("further run", of[RUN])]
    told += [_names("model", of[MODEL]), _names("group of values", of[OWN]), _names("directory of files", of[FILES])]
    return f"logged {' and '.join(filter(None, told))}"


def _progress(shown: Progress) -> str:
    """For example `it shows step 121, 122; loss 0.34`."""
    steps = f"step {', '.join(map(str, shown.steps))}" if shown.steps else "no step"
    fell = [] if shown.fell_to is None else [f"back at step {shown.fell_to}"]
    losses = [f"{name} {value:.4g}" for name, value in shown.first.items()]
    sdk = {None: [], "loaded": ["the SDK loaded its checkpoint"]}.get(shown.sdk, ["it asked the SDK for its checkpoint"])
    return "; ".join([f"it shows {steps}", *fell, *losses, *sdk])


def _attempt_sentence(event: ev.Event) -> str:
    """One line about an attempt's event."""
    match event:
        case ev.Placed(attempt, allocation, terms=terms):
            counts = f" (it counted {summed(terms)})" if terms else ""
            return f"attempt {attempt} placed on {', '.join(share.node for share in allocation.shares)}{counts}"
        case ev.PreparationBegan(_, index, doing):
            return f"n{index}: {doing}"
        case ev.RendezvousChosen(_, address, port):
            return f"rendezvous at {address}:{port}"
        case ev.NodeStarted(_, index, restored):
            back = "" if restored is None else f", given checkpoint {restored}"  # whose step the checkpoint's own event has
            return f"ranks of n{index} run{back}"
        case ev.NodeLost(_, index, evidence):
            return _because(f"agent n{index} lost", evidence)
        case ev.NodeEnded(_, index, outcome):
            return f"n{index} ended: {_outcome(outcome)}"
        case ev.CheckpointStaged(id=id, step=step, part=part, parts_expected=parts, at_least=at_least, approximate=about):
            of = f", part of n{part.node_index} of {parts}" if parts > 1 else ""
            later = "" if at_least is None else f", saved after the attempt was given step {at_least}"
            return f"checkpoint {id}" + (later if step is None else f" at {'about ' if about else ''}step {step}") + of
        case ev.AttemptEnded(attempt, verdict):
            return _because(f"attempt {attempt} ended, {verdict.action.value}", verdict.reason)
    return type(event).__name__


def _outcome(outcome: Outcome) -> str:
    """How the part of one agent ended."""
    if outcome.launch_error is not None:
        return outcome.launch_error
    if outcome.machine_error is not None:
        return outcome.machine_error
    if outcome.lost:
        return "no exit record"
    if outcome.clean:
        return "all ranks exited 0"
    bad = [rank for rank in outcome.ranks if rank.exit_code != 0]
    ends = [f"rank {r.rank} " + (f"signal {r.signal}" if r.signal is not None else f"exit {r.exit_code}") for r in bad]
    return ", ".join(ends[:4]) + (f" and {len(ends) - 4} more" if len(ends) > 4 else "")


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
