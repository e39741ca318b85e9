"""From an agent's report (JSON of `wire.messages`) to the event it stands for. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from trainmaster.model.checkpoints import Artifact, Part
from trainmaster.model.events import ArtifactKept, CheckpointStaged, JobEvent, NodeEnded, NodeStarted, RendezvousChosen
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome, RankEnd


def event_of(key: AgentKey, report: Mapping[str, object]) -> JobEvent | None:
    """The event, or None for a report that is not one (a kind of a newer agent).

    Raises: KeyError, TypeError or ValueError for a malformed report; the caller drops it with a word.
    """
    body = cast(Mapping[str, Any], report)
    n = int(body.get("n", 0))
    match body["kind"]:
        case "started":
            return NodeStarted(key.attempt, key.node_index, body["restored"], body["step"], tuple(body["bad"]), n)
        case "rendezvous":
            return RendezvousChosen(key.attempt, str(body["address"]), int(body["port"]))
        case "staged":
            part = Part(key.node_index, str(body["digest"]), int(body["files"]), int(body["bytes"]))
            return CheckpointStaged(
                key.attempt, str(body["id"]), body["step"], part, int(body["parts_expected"]), bool(body["approximate"]), n
            )
        case "kept":
            artifact = Artifact(str(body["path"]), str(body["digest"]), int(body["bytes"]), key.attempt)
            return ArtifactKept(key.attempt, key.node_index, artifact, n)
        case "ended":
            return NodeEnded(key.attempt, key.node_index, outcome_of(body))
        case _:
            return None


def outcome_of(body: Mapping[str, Any]) -> Outcome:
    """The outcome in an `Ended` report or an exit record."""
    return Outcome(
        ranks=tuple(rank_end_of(r) for r in body["ranks"]),
        launch_error=body["launch_error"],
        over_memory=bool(body["over_memory"]),
        memory_limit_bytes=body["memory_limit_bytes"],
        peak_memory_bytes=int(body["peak_memory_bytes"]),
        port_in_use=bool(body["port_in_use"]),
        last_step=body["last_step"],
        first_step=body["first_step"],
        ran_s=float(body["ran_s"]),
    )


def rank_end_of(body: Mapping[str, Any]) -> RankEnd:
    """How one rank ended."""
    return RankEnd(
        rank=int(body["rank"]),
        exit_code=body["exit_code"],
        signal=body["signal"],
        stopped_by_us=bool(body["stopped_by_us"]),
        ended_after_s=float(body["ended_after_s"]),
        last_lines=tuple(body["last_lines"]),
        error=body["error"],
        peak_memory_bytes=int(body["peak_memory_bytes"]),
        cpu_s=float(body["cpu_s"]),
    )
