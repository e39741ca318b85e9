"""Deduplicates the points of agents: tracks the last stored number of each agent, in the transaction that stores points.

A batch that arrives twice, late, or again from the file that its agent left is stored once. An agent's clock is mapped onto
the epoch at its first heartbeat or point, so that neither a late request nor a step of the clock moves a point.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, select, tuple_

from trainmaster.model.ids import AgentKey
from trainmaster.ports.metric_store import Arrival, HeartbeatRow, MetricPoint
from trainmaster.store import schema
from trainmaster.store.database import upsert

_PER_QUERY = 200
_arrival = schema.arrival
_SET = upsert(_arrival, ["job", "attempt", "node_index"])

Agent = tuple[str, int, int]  # job, attempt, node index
Beats = Sequence[tuple[AgentKey, HeartbeatRow]]


class Placed(NamedTuple):
    """A point to store, with its time in seconds since the epoch."""

    point: MetricPoint
    time_s: float


class Arrivals:
    """State, within one transaction, of the agents of `points` and `beats`."""

    def __init__(self, connection: Connection, points: Iterable[MetricPoint], beats: Beats) -> None:
        told = {_agent(point, point.arrival) for point in points if point.arrival is not None}
        agents = sorted(told | {(key.job, key.attempt, key.node_index) for key, _ in beats})
        self._numbers: dict[Agent, int] = {}
        self._origins: dict[Agent, float | None] = {}
        self._changed: set[Agent] = set()
        self._last: Arrival | None = None  # the point whose values are being processed
        key = tuple_(_arrival.c.job, _arrival.c.attempt, _arrival.c.node_index)
        for start in range(0, len(agents), _PER_QUERY):
            query = select(_arrival).where(key.in_(agents[start : start + _PER_QUERY]))
            for job, attempt, node_index, n, origin_s in connection.execute(query):
                self._numbers[job, attempt, node_index] = n
                self._origins[job, attempt, node_index] = origin_s

    def hear(self, key: AgentKey, beat: HeartbeatRow) -> None:
        """Map the agent's clock by a heartbeat, if no earlier one or point did."""
        agent = (key.job, key.attempt, key.node_index)
        if self._origins.get(agent) is None:
            self._origins[agent] = beat.time_s - beat.at_s
            self._numbers.setdefault(agent, 0)
            self._changed.add(agent)

    def place(self, point: MetricPoint) -> Placed | None:
        """The point with its time; None if it is stored already."""
        arrival = point.arrival
        if arrival is None:
            return Placed(point, point.time_s)
        agent = _agent(point, arrival)
        if arrival is not self._last:
            if arrival.n <= self._numbers.get(agent, 0):
                return None
            self._numbers[agent] = arrival.n
            self._changed.add(agent)
            self._last = arrival
        if arrival.at_s is None:
            return Placed(point, point.time_s)
        origin_s = self._origins.get(agent)
        if origin_s is None:
            origin_s = self._origins[agent] = point.time_s - arrival.at_s
        return Placed(point, origin_s + arrival.at_s)

    def write(self, connection: Connection) -> None:
        """Store the changed state of the agents."""
        rows = [
            {"job": agent[0], "attempt": agent[1], "node_index": agent[2], "n": n, "origin_s": self._origins.get(agent)}
            for agent, n in self._numbers.items()
            if agent in self._changed
        ]
        if rows:
            connection.execute(_SET, rows)


def _agent(point: MetricPoint, arrival: Arrival) -> Agent:
    return point.job, point.attempt, arrival.node_index


def forget(connection: Connection, job: str, before: int) -> None:
    """Drop the state of attempts before `before`: no more of their points are stored."""
    connection.execute(delete(_arrival).where(_arrival.c.job == job, _arrival.c.attempt < before))
