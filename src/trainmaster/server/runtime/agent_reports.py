"""Reads the sync message of an agent piece by piece: an invalid piece is skipped with a warning, the rest is stored.

The agent may have another version. Unknown fields are ignored. Reports of an unknown kind are stored, and control ignores
them. A point without a number is stored as it comes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.ports.metric_store import Arrival, HeartbeatRow, MetricPoint
from trainmaster.ports.store import NewRow
from trainmaster.wire.names import is_metric_name

_INT_MAX = 2**63 - 1
_KNOWN = frozenset(("key", "reports", "points", "heartbeat", "wait_s", "orders_seen"))
_SAID_MAX = 100  # characters quoted in a warning
_AGAIN_S = 600.0  # at most one warning per agent and topic in this time
_REMEMBERED_MAX = 10_000  # pairs of agent and topic
_WORDS = {  # the warning for users, by topic
    "reports": "the server passed over something that the agent on node {} content: {}",
    "metrics": "the server passed over metric values that the agent on node {} content: {}",
}


@dataclass(slots=True)
class SyncContent:
    """The storable content of one sync message."""

    key: AgentKey
    now_s: float
    reports: list[dict[str, Any]] = field(default_factory=list)
    points: list[MetricPoint] = field(default_factory=list)
    heartbeats: list[HeartbeatRow] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)  # topic -> the latest fault

    @property
    def ack(self) -> int:
        """The highest report number; the agent need not send reports up to it again."""
        return max((int(report["n"]) for report in self.reports), default=0)


class FaultWarnings:
    """Rate-limited warnings about skipped data, per agent and topic."""

    def __init__(self) -> None:
        self._said_s: dict[tuple[str, str], float] = {}

    def due(self, content: SyncContent, now_s: float) -> list[NewRow]:
        """Warnings that are due, as reports for control. `now_s` is on the monotonic clock."""
        rows = []
        for topic, fault in content.faults.items():
            name = (str(content.key), topic)
            if now_s - self._said_s.get(name, -_AGAIN_S) < _AGAIN_S:
                continue
            if len(self._said_s) >= _REMEMBERED_MAX:
                self._said_s.clear()
            self._said_s[name] = now_s
            text = _WORDS[topic].format(content.key.node_index, fault)
            report = {"kind": "warned", "n": 0, "topic": f"{topic} passed over", "text": text}
            digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
            rows.append(NewRow(f"{content.key}:word:{digest}", AgentReport(str(content.key), report), content.now_s))
        return rows


def read(body: Mapping[str, Any], key: AgentKey, now_s: float) -> SyncContent:
    """Parse a whole sync message. `now_s`: its time of arrival in seconds since the epoch."""
    content = SyncContent(key, now_s)
    strange = sorted(name for name in body if name not in _KNOWN)
    if strange:
        content.faults["reports"] = f"fields that this version does not know: {', '.join(strange)[:_SAID_MAX]}"
    for report in _objects(content, body, "reports"):
        number, kind = whole(report.get("n")), report.get("kind")
        if number is None or number < 1 or not isinstance(kind, str):
            content.faults["reports"] = f"a report of kind {_quoted(kind)} with the number {_quoted(report.get('n'))}"
        else:
            content.reports.append(report)
    for point in _objects(content, body, "points"):
        content.points += _values(content, point)
    beat = body.get("heartbeat")
    if isinstance(beat, dict):
        memory, step = whole(beat.get("memory_bytes")) or 0, whole(beat.get("step"))
        at_s = number_of(beat.get("at_s", beat.get("running_s")))  # older agents send running_s, which orders their heartbeats
        content.heartbeats.append(HeartbeatRow(str(key), now_s, step, memory, number_of(beat.get("cpu_s")), at_s))
    return content


def whole(value: Any) -> int | None:
    """`value` as an integer that the store can hold; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _INT_MAX:
        return None
    return value


def number_of(value: Any) -> float:
    """`value` as a finite number >= 0; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _INT_MAX:
        return 0.0
    return float(value)


def _objects(content: SyncContent, body: Mapping[str, Any], name: str) -> Iterator[dict[str, Any]]:
    found = body.get(name)
    if found is not None and not isinstance(found, list):
        content.faults["reports"] = f"{name} is no list"
        return
    for each in found or ():
        if isinstance(each, dict):
            yield each
        else:
            content.faults["reports"] = f"{name} holds {_quoted(each)}"


def _values(content: SyncContent, point: Mapping[str, Any]) -> Iterator[MetricPoint]:
    """The storable values of one point."""
    step, values, n = point.get("step"), point.get("values"), whole(point.get("n"))
    if (step is not None and whole(step) is None) or not isinstance(values, dict):
        content.faults["metrics"] = f"a point at step {_quoted(step)}"
        return
    age_s, rank = number_of(point.get("age_s")), whole(point.get("rank")) or 0
    arrival = None
    if n is not None and n > 0:
        at_s = point.get("at_s")
        if not isinstance(at_s, int | float) or not abs(at_s) <= _INT_MAX:
            at_s = None
        arrival = Arrival(content.key.node_index, n, at_s)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, int) and whole(value) is None):
            content.faults["metrics"] = f"{_quoted(name)} is {_quoted(value)} at step {step}: no number that can be stored"
        elif not is_metric_name(name):
            content.faults["metrics"] = f"{_quoted(name)} is no name of a metric"
        else:
            key, time_s = content.key, content.now_s - age_s
            yield MetricPoint(key.job, key.attempt, rank, step, name, float(value), time_s, arrival)


def _quoted(value: Any) -> str:
    return repr(value)[:_SAID_MAX]
