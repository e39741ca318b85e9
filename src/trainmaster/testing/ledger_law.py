"""Checks the ledger against the events alone: nothing is charged twice and nothing is missed, to the millisecond."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isclose, log

from trainmaster.model.cluster import Cluster
from trainmaster.model.events import (
    AttemptEnded,
    CheckpointStaged,
    ClockSet,
    ClusterConfigured,
    NodeStarted,
    Placed,
    Submitted,
)
from trainmaster.model.ledger import Charge
from trainmaster.ports.store import ChargeQuery, EventStore, Recorded

Attempt = tuple[str, int]


@dataclass(slots=True)
class _Told:
    """One attempt according to its events. Times are those of the events, to the millisecond, moved with the clock."""

    gpus: float
    cpus: float
    from_s: float
    served_s: tuple[float, float] | None = None  # begin and end by a steady clock; None: it runs
    until_s: float | None = None
    starts: list[str | None] = field(default_factory=list)  # checkpoints that it was to start from, and started from
    committed: dict[str, float] = field(default_factory=dict)  # checkpoints with the time of their last part

    def move(self, by_s: float) -> None:
        """The clock was set."""
        self.from_s += by_s
        self.until_s = None if self.until_s is None else self.until_s + by_s
        self.committed = {id: at_s + by_s for id, at_s in self.committed.items()}


def ledger_problems(store: EventStore) -> list[str]:
    """Differences between the ledger and the log. Empty if they agree. Memory: all attempts."""
    told, projects = _told(list(_log(store)))
    rows: dict[Attempt, list[Charge]] = {}
    for charge in store.charges(ChargeQuery()):
        rows.setdefault((charge.job, charge.attempt), []).append(charge)
    found = [f"{job}.{number} is charged, and was never placed" for job, number in rows.keys() - told.keys()]
    found += [f"{job}.{number} was placed, and is not charged" for job, number in told.keys() - rows.keys()]
    for attempt in told.keys() & rows.keys():
        found += _differences(attempt, told, rows[attempt])
        found += [f"{attempt} is charged to {one.payer}" for one in rows[attempt] if one.payer.project != projects[attempt[0]]]
    return found + _balance_problems(store, told, projects)


def _log(store: EventStore) -> Iterator[Recorded]:
    seq = 0
    while page := store.events(seq, 1000):
        yield from page
        seq = page[-1].seq


def _steadied(log: list[Recorded]) -> Iterator[tuple[Recorded, float]]:
    """Each event, with the total offset of the clock until then."""
    ahead_s = 0.0
    for recorded in log:
        if recorded.job is None and isinstance(recorded.event, ClockSet):
            ahead_s += recorded.event.by_s
        yield recorded, ahead_s


def _told(log: list[Recorded]) -> tuple[dict[Attempt, _Told], dict[str, str]]:
    told: dict[Attempt, _Told] = {}
    projects: dict[str, str] = {}
    live: dict[str, _Told] = {}
    for recorded, ahead_s in _steadied(log):
        job, now_s = recorded.job or "", round(recorded.now_s * 1000) / 1000
        match recorded.event:
            case ClockSet(by_s) if recorded.job is not None:
                for attempt in [one for (name, _), one in told.items() if name == job]:
                    attempt.move(by_s)
            case Submitted(spec=spec):
                projects[job] = spec.project
            case Placed(attempt, allocation, resume):
                gpus = sum(share.gpus for share in allocation.shares)
                live[job] = told[job, attempt] = _Told(gpus, sum(share.cpus for share in allocation.shares), now_s)
                live[job].starts.append(resume[0] if resume else None)
            case NodeStarted(node_index=0, restored=restored):
                live[job].starts.append(restored)
            case CheckpointStaged(id=id):
                live[job].committed[id] = now_s
            case AttemptEnded():
                live[job].until_s = now_s
                live[job].served_s = live[job].from_s - ahead_s, now_s - ahead_s
    return told, projects


def _differences(attempt: Attempt, told: dict[Attempt, _Told], rows: list[Charge]) -> list[str]:
    """Check one attempt: what it held for how long, and which part was repeated."""
    one = told[attempt]
    until_ms = None if one.until_s is None else round(one.until_s * 1000)
    spans = {(row.from_ms, row.until_ms) for row in rows}
    name = f"{attempt[0]}.{attempt[1]}"
    if spans != {(round(one.from_s * 1000), until_ms)}:
        return [f"{name} is charged for {spans}, and was there from {one.from_s} until {one.until_s}"]
    held = sum(row.rate.gpu_milli for row in rows), sum(row.rate.cpu_milli for row in rows)
    expected = (round(one.gpus * 1000), 0) if one.gpus else (0, round(one.cpus * 1000))
    if held != expected:
        return [f"{name} is charged {held} thousandths, and held {expected}"]
    lost, wanted = {row.lost_from_ms for row in rows}, _lost_from_ms(attempt, told)
    return [] if lost == {wanted} else [f"{name} did in vain what came after {lost}, by the events after {wanted}"]


def _lost_from_ms(attempt: Attempt, told: dict[Attempt, _Told]) -> int | None:
    """The earliest point that a later attempt resumed from."""
    job, number = attempt
    mine, points = told[attempt], []
    for later in range(number + 1, 1 + max(other for name, other in told if name == job)):
        for start in told[job, later].starts:
            kept = [n for n in range(1, later) if start is not None and start in told[job, n].committed]
            if not kept or kept[-1] < number:
                points.append(mine.from_s)
            elif kept[-1] == number and start is not None:
                points.append(mine.committed[start])
    return round(min(points) * 1000) if points else None


def _balance_problems(store: EventStore, told: dict[Attempt, _Told], projects: dict[str, str]) -> list[str]:
    """Check each project's decayed service by a separate integral; each half-life applies while it is configured."""
    lives, weights, set_s = [(-inf, Cluster().half_life_s)], [(-inf, Cluster().cpu_weight)], 0.0
    for recorded, set_s in _steadied(list(_log(store))):
        if isinstance(recorded.event, ClusterConfigured):
            lives.append((round(recorded.now_s, 3) - set_s, recorded.event.cluster.half_life_s))
            weights.append((lives[-1][0], recorded.event.cluster.cpu_weight))
    found = []
    for balance in store.balances():
        left = 0.0
        for (job, _), one in told.items():
            if one.served_s is not None and projects[job] == balance.project:
                began_s, ended_s = one.served_s
                decay = log(2) / [life_s for at_s, life_s in lives if at_s <= ended_s][-1]
                weight = [weight for at_s, weight in weights if at_s <= ended_s][-1]
                served = (one.gpus or weight * one.cpus) * (1 - 2 ** (-(ended_s - began_s) * decay / log(2))) / decay
                left += served * _kept(lives, ended_s, balance.at_s - set_s)
        if not isclose(balance.service, left, rel_tol=1e-6, abs_tol=1e-6):
            found.append(f"{balance.project} has {balance.service} left, by the events {left}")
    return found


def _kept(lives: list[tuple[float, float]], from_s: float, until_s: float) -> float:
    """The remaining share after decay with changing half-lives."""
    kept = 1.0
    for (begin_s, life_s), (end_s, _) in zip(lives, [*lives[1:], (inf, 0.0)], strict=True):
        kept *= 2 ** (-max(0.0, min(end_s, until_s) - max(begin_s, from_s)) / life_s)
    return kept
