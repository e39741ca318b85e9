"""Converts files of an agent into values of the model: its exit record (`wire.messages.Ended`), and the spool of an agent
that was killed before it wrote one.
"""

import json
from collections.abc import Mapping
from typing import Any

from trainmaster.model.job import Outcome, RankEnd
from trainmaster.model.progress import Progress

_MARKS = ("approximate", "read")  # of `wire.messages.Started`: only what is true is there
_LATER = ("run", "not_kept", "warned")  # reports that older agents do not send


def outcome(ended: Mapping[str, Any]) -> Outcome:
    """Raises: KeyError, TypeError, ValueError if the record is incomplete."""
    return Outcome(
        ranks=tuple(_rank(rank) for rank in ended["ranks"]),
        launch_error=_text(ended["launch_error"]),
        machine_error=_text(ended.get("machine_error")),
        over_memory=bool(ended["over_memory"]),
        memory_limit_bytes=_int(ended["memory_limit_bytes"]),
        peak_memory_bytes=int(ended["peak_memory_bytes"]),
        port_in_use=bool(ended["port_in_use"]),
        last_step=_int(ended["last_step"]),
        first_step=_int(ended["first_step"]),
        ran_s=float(ended["ran_s"]),
        roles=tuple(_rank(role) for role in ended.get("roles", ())),
        launch_lines=tuple(str(line) for line in ended.get("launch_lines", ())),
        killed_for_memory=bool(ended.get("killed_for_memory", False)),
        failed_ago_s=float(ended.get("failed_ago_s", 0.0)),
        bad=tuple(str(id) for id in ended.get("bad", ())),
        doubted=tuple(str(id) for id in ended.get("doubted", ())),
        progress=Progress.of(ended.get("progress")),
        unread=str(ended.get("unread", "")),
    )


def reports(ended: Mapping[str, Any]) -> tuple[Mapping[str, object], ...]:
    """The earlier reports that the record repeats, in their order. Raises: KeyError, TypeError, ValueError."""
    started: list[Mapping[str, object]] = []
    if ended["ranks"] and ended["launch_error"] is None:
        started.append(
            {
                "kind": "started",
                "n": 0,
                "restored": ended["restored"],
                "step": ended["restored_step"],
                "bad": list(ended["bad"]),
                "environment": _text(ended.get("environment")),
                **{mark: ended[f"restored_{mark}"] for mark in _MARKS if f"restored_{mark}" in ended},
            }
        )
    told = [*ended["staged"], *ended["kept"], *(one for kind in _LATER for one in ended.get(kind, []))]
    return (*started, *sorted(told, key=lambda report: int(report["n"])))


def spooled(data: bytes) -> tuple[Mapping[str, object], ...]:
    """Unacknowledged reports of a dead agent. Torn lines are skipped: the last one, and after a full disk perhaps others."""
    found = {}
    for line in data.splitlines():
        try:
            report = json.loads(line)
            found[int(report["n"])] = report
        except (ValueError, TypeError, KeyError):
            continue
    return tuple(found[n] for n in sorted(found) if found[n].get("kind") != "ended")


def _rank(rank: Mapping[str, Any]) -> RankEnd:
    return RankEnd(
        rank=int(rank["rank"]),
        exit_code=_int(rank["exit_code"]),
        signal=_int(rank["signal"]),
        stopped_by_us=bool(rank["stopped_by_us"]),
        ended_after_s=float(rank["ended_after_s"]),
        last_lines=tuple(str(line) for line in rank["last_lines"]),
        error=_text(rank["error"]),
        peak_memory_bytes=int(rank["peak_memory_bytes"]),
        cpu_s=float(rank["cpu_s"]),
        role=_text(rank.get("role")),
        raised=_text(rank.get("raised")),
    )


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
