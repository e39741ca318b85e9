"""Converts an agent's report (JSON of `wire.messages`) into an event. Pure.

Every value is checked before it enters an event, because a recorded event must stay readable. Unknown fields, of newer
agents, are ignored. Fields listed in `_DEFAULTS` are optional; all others are required.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from trainmaster.model import redaction
from trainmaster.model.checkpoints import Artifact, ArtifactKind, Part
from trainmaster.model.events import (
    ArtifactKept,
    CheckpointStaged,
    EnvironmentSeen,
    JobEvent,
    NodeEnded,
    NodeStarted,
    NotKept,
    PreparationBegan,
    ProgressSeen,
    RendezvousChosen,
    RunDataLogged,
    Warned,
)
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome, RankEnd
from trainmaster.model.progress import Progress
from trainmaster.model.spec import JobSpec
from trainmaster.wire.names import is_artifact_name

_WHOLE_MAX = 2**63 - 1  # the largest integer that the stores can hold
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_DOING_MAX, _NAME_MAX, _WHY_MAX, _TOPIC_MAX = 300, 300, 500, 40  # characters
_STORED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")  # one component of a blob's name
_DEFAULTS: Mapping[str, Mapping[str, object]] = {  # by kind of report
    "started": {"restored": None, "step": None, "bad": (), "environment": None, "approximate": False, "read": False,
                "ago_s": 0.0},
    "staged": {"name": "", "step": None, "approximate": False, "after_s": None, "progress": None},
    "not_kept": {"what": "artifact", "why": "the agent did not say why"},
    "warned": {"data": {}},
    "run": {"params": {}, "tags": {}},
    "ended": {
        "machine_error": None, "roles": (), "launch_lines": (),
        "killed_for_memory": False, "failed_ago_s": 0.0, "bad": (), "doubted": (), "progress": None, "unread": "",
        "terminated": False,
    },
}  # fmt: skip


def number_of(report: Mapping[str, object]) -> int:
    """The report's number; 0 for a report repeated by an exit record, which has none. Raises: ValueError."""
    return _whole(report, "n") if "n" in report else 0


def event_of(key: AgentKey, report: Mapping[str, object]) -> JobEvent | None:
    """The event, or None for an unknown kind of report (of a newer agent).

    Raises: KeyError or ValueError for a malformed report; the caller drops it with a warning.
    """
    n, kind = number_of(report), report["kind"]
    report = {**(_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}), **report}
    match kind:
        case "started":
            restored, step = _text_or_none(report, "restored"), _whole_or_none(report, "step")
            environment = _digest(report, "environment") if report.get("environment") is not None else None
            bad, about = _texts(report, "bad"), _truth(report, "approximate")
            unread, ago_s = restored is not None and not _truth(report, "read"), max(0.0, _number(report, "ago_s"))
            return NodeStarted(key.attempt, key.node_index, restored, step, bad, n, environment, about, unread, ago_s)
        case "environment":
            return EnvironmentSeen(key.attempt, key.node_index, _digest(report, "environment"))
        case "preparing":
            return PreparationBegan(key.attempt, key.node_index, _text(report, "doing")[:_DOING_MAX])
        case "rendezvous":
            return RendezvousChosen(key.attempt, _text(report, "address"), _whole(report, "port"))
        case "staged":
            part = Part(key.node_index, _text(report, "digest"), _whole(report, "files"), _whole(report, "bytes"))
            step, parts = _whole_or_none(report, "step"), _whole(report, "parts_expected")
            after_s = None if step is not None or report["after_s"] is None else _number(report, "after_s")
            return CheckpointStaged(
                key.attempt, _stored(report, "id"), step, part, parts, _truth(report, "approximate"), n, after_s=after_s,
                progress=Progress.of(report["progress"]), name=_text(report, "name")[:_NAME_MAX],
            )  # fmt: skip
        case "kept":
            return ArtifactKept(key.attempt, key.node_index, _artifact_of(key, report), n)
        case "not_kept":
            what = "checkpoint" if report.get("what") == "checkpoint" else "artifact"
            name, why = _text(report, "name")[:_NAME_MAX], _text(report, "why")[:_WHY_MAX]
            return NotKept(key.attempt, key.node_index, what, name, why, n)
        case "warned":
            topic, text = _text(report, "topic")[:_TOPIC_MAX], _text(report, "text")[:_WHY_MAX]
            return Warned(key.attempt, key.node_index, topic, text, n, _strings(report, "data"))
        case "run":
            params, tags = _strings(report, "params"), _strings_or_none(report, "tags")
            prefixes = _strings(report, "prefixes") if "prefixes" in report else {}
            return RunDataLogged(key.attempt, key.node_index, params, tags, n, prefixes)
        case "progress":
            return ProgressSeen(key.attempt, key.node_index, Progress.of(report["progress"]) or Progress(), n)
        case "ended":
            return NodeEnded(key.attempt, key.node_index, outcome_of(report))
        case _:
            return None


def without_secrets(event: JobEvent, spec: JobSpec) -> JobEvent:
    """The event without the credentials that the spec gives to the program: an exception or its last lines may have them."""
    if not isinstance(event, NodeEnded | NotKept | Warned):
        return event  # what a program logs is given back to it, and hidden where it is shown
    clean = partial(redaction.without_known, secrets=redaction.known(spec))
    match event:
        case NodeEnded(outcome=outcome):
            return replace(event, outcome=_clean_outcome(outcome, clean))
        case NotKept(why=why):
            return replace(event, why=clean(why))
        case Warned(text=text):
            return replace(event, text=clean(text))


def _clean_outcome(outcome: Outcome, clean: Callable[[str], str]) -> Outcome:
    return replace(
        outcome,
        ranks=tuple(_clean_rank(rank, clean) for rank in outcome.ranks),
        roles=tuple(_clean_rank(role, clean) for role in outcome.roles),
        launch_lines=tuple(map(clean, outcome.launch_lines)),
        launch_error=None if outcome.launch_error is None else clean(outcome.launch_error),
        machine_error=None if outcome.machine_error is None else clean(outcome.machine_error),
        unread=clean(outcome.unread),
    )


def _clean_rank(rank: RankEnd, clean: Callable[[str], str]) -> RankEnd:
    error = None if rank.error is None else clean(rank.error)
    raised = None if rank.raised is None else clean(rank.raised)
    return replace(rank, last_lines=tuple(map(clean, rank.last_lines)), error=error, raised=raised)


def _artifact_of(key: AgentKey, report: Mapping[str, object]) -> Artifact:
    """The kept file. A kind that this version does not know becomes FILE. Raises: KeyError, ValueError."""
    path, said = _text(report, "path"), report.get("artifact_kind")
    if not is_artifact_name(path):
        raise ValueError("path is not a valid artifact name")
    kind = ArtifactKind(said) if isinstance(said, str) and said in set(ArtifactKind) else ArtifactKind.FILE
    return Artifact(path, _stored(report, "digest"), _whole(report, "bytes"), key.attempt, kind)


def outcome_of(body: Mapping[str, object]) -> Outcome:
    """The outcome in an `Ended` report. Raises: KeyError, ValueError."""
    return Outcome(
        ranks=tuple(_rank_end_of(rank) for rank in _objects(body, "ranks")),
        launch_error=_text_or_none(body, "launch_error"),
        machine_error=_text_or_none(body, "machine_error"),
        over_memory=_truth(body, "over_memory"),
        memory_limit_bytes=_whole_or_none(body, "memory_limit_bytes"),
        peak_memory_bytes=_whole(body, "peak_memory_bytes"),
        port_in_use=_truth(body, "port_in_use"),
        last_step=_whole_or_none(body, "last_step"),
        first_step=_whole_or_none(body, "first_step"),
        ran_s=_number(body, "ran_s"),
        roles=tuple(_rank_end_of(role) for role in _objects(body, "roles")),
        launch_lines=_texts(body, "launch_lines"),
        killed_for_memory=_truth(body, "killed_for_memory"),
        failed_ago_s=_number(body, "failed_ago_s"),
        bad=_texts(body, "bad"),
        doubted=_texts(body, "doubted"),
        progress=Progress.of(body["progress"]),
        unread=_text(body, "unread")[:_WHY_MAX],
        terminated=_truth(body, "terminated"),
    )


def _rank_end_of(body: Mapping[str, object]) -> RankEnd:
    return RankEnd(
        rank=_whole(body, "rank"),
        exit_code=_whole_or_none(body, "exit_code"),
        signal=_whole_or_none(body, "signal"),
        stopped_by_us=_truth(body, "stopped_by_us"),
        ended_after_s=_number(body, "ended_after_s"),
        last_lines=_texts(body, "last_lines"),
        error=_text_or_none(body, "error"),
        peak_memory_bytes=_whole(body, "peak_memory_bytes"),
        cpu_s=_number(body, "cpu_s"),
        role=_text_or_none(body, "role") if "role" in body else None,
        outside=_text_or_none(body, "outside") if "outside" in body else None,
        raised=_text_or_none(body, "raised") if "raised" in body else None,
    )


def _whole(body: Mapping[str, object], name: str) -> int:
    found = body[name]
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) > _WHOLE_MAX:
        raise ValueError(f"{name} is not an integer in range")
    return found


def _whole_or_none(body: Mapping[str, object], name: str) -> int | None:
    return None if body[name] is None else _whole(body, name)


def _number(body: Mapping[str, object], name: str) -> float:
    found = body[name]
    if not isinstance(found, float):
        return float(_whole(body, name))
    if not abs(found) <= _WHOLE_MAX:
        raise ValueError(f"{name} is not a number that can be stored")
    return found


def _truth(body: Mapping[str, object], name: str) -> bool:
    found = body[name]
    if not isinstance(found, bool):
        raise ValueError(f"{name} is not a boolean")
    return found


def _text(body: Mapping[str, object], name: str) -> str:
    found = body[name]
    if not isinstance(found, str):
        raise ValueError(f"{name} is not a string")
    return found


def _stored(body: Mapping[str, object], name: str) -> str:
    found = _text(body, name)
    if _STORED.match(found) is None:
        raise ValueError(f"{name} is not a name in the store")
    return found


def _digest(body: Mapping[str, object], name: str) -> str:
    found = _text(body, name)
    if _SHA256.match(found) is None:
        raise ValueError(f"{name} is not a SHA-256")
    return found


def _text_or_none(body: Mapping[str, object], name: str) -> str | None:
    return None if body[name] is None else _text(body, name)


def _list(body: Mapping[str, object], name: str) -> Sequence[object]:
    found = body[name]
    if not isinstance(found, list | tuple):
        raise ValueError(f"{name} is not a list")
    return found


def _texts(body: Mapping[str, object], name: str) -> tuple[str, ...]:
    found = _list(body, name)
    if not all(isinstance(text, str) for text in found):
        raise ValueError(f"{name} contains an item that is not a string")
    return tuple(str(text) for text in found)


def _strings_or_none(body: Mapping[str, object], name: str) -> dict[str, str | None]:
    found = body[name]
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{name} is not an object")
    return {str(key): _text_or_none(found, key) for key in found}


def _strings(body: Mapping[str, object], name: str) -> dict[str, str]:
    return {key: _text({key: value}, key) for key, value in _strings_or_none(body, name).items()}


def _objects(body: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = [item for item in _list(body, name) if isinstance(item, Mapping)]
    if len(found) != len(_list(body, name)):
        raise ValueError(f"{name} contains an item that is not an object")
    return found
