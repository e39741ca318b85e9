"""The queue played forward by counting nodes: the same starts as `forward.starts`, where all nodes are alike and whole ones
are asked for. That is a law; what it does not hold for is not counted.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import FOREVER, Cell, steps
from trainmaster.scheduling.order import priority_then_fifo
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.snapshot import DEFAULT, Snapshot
from trainmaster.scheduling.task import Kind

_End = tuple[float, int, int, str]  # as it is thought of, of which job (its seq), nodes, id


class _Waiting(NamedTuple):
    id: str
    nodes: int
    estimate_s: float
    kind: Kind
    seq: int


class Counted:
    """A snapshot in numbers of nodes: `free` now, the queue in order, those that run by the end that is thought of them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        tasks = sorted(snapshot.waiting.values(), key=lambda task: (policy.order(snapshot, task), task.seq))
        self.now_s = snapshot.now_s
        self.depth = policy.depth(snapshot)
        self.queue = [
            _Waiting(t.id, t.kind.ask.nodes, FOREVER if t.estimate_s is None else t.estimate_s, t.kind, t.seq) for t in tasks
        ]
        runs = snapshot.running.values()
        self.ends: list[_End] = sorted((run.end_s, run.task.seq, len(run.grant.nodes), run.task.id) for run in runs)
        self.free = len(snapshot.sites) - sum(end[2] for end in self.ends)

    def starts(self, lives: Mapping[str, float], wanted: Collection[str]) -> dict[str, float]:
        """As `forward.starts`."""
        now_s, free, queue, ends = self.now_s, self.free, self.queue, list(self.ends)
        missing, began_s = set(wanted), dict[str, float]()
        truly = [(now_s + lives[end[3]], end) for end in ends]
        heapify(truly)
        while True:
            queue, started = self._decide(now_s, free, queue, ends)
            for end in started:
                free -= end[2]
                began_s[end[3]] = now_s
                heappush(truly, (now_s + lives[end[3]], end))
                missing.discard(end[3])
            if not missing or not truly:
                return {id: began_s[id] for id in wanted if id in began_s}
            now_s = max(now_s, truly[0][0])
            while truly and truly[0][0] <= now_s:
                end = heappop(truly)[1]
                free += end[2]
                del ends[bisect_left(ends, end)]

    def _decide(self, now_s: float, free: int, queue: list[_Waiting], ends: list[_End]) -> tuple[list[_Waiting], list[_End]]:
        """Who goes on waiting, and who starts; `ends` has them too then."""
        refused: set[Kind] = set()
        rest: list[_Waiting] = []
        started: list[_End] = []
        kept_s, spare, room = FOREVER, 0, self.depth > 0
        for at, one in enumerate(queue):
            id, nodes, estimate_s, kind, seq = one
            if nodes <= free and kind not in refused:
                end_s = now_s + estimate_s
                late = end_s > kept_s
                if not late or nodes <= spare:
                    spare -= nodes if late else 0
                    free -= nodes
                    end = (end_s, seq, nodes, id)
                    insort(ends, end)
                    started.append(end)
                    continue
            rest.append(one)
            if kind in refused:
                continue
            refused.add(kind)
            if room:
                found = _earliest(free, nodes, ends, now_s)
                if found is not None:
                    (kept_s, spare), room = found, False
            if not free and not room:
                rest += queue[at + 1 :]
                break
        return rest, started


def _earliest(free: int, nodes: int, ends: list[_End], now_s: float) -> tuple[float, int] | None:
    """When `nodes` are free by what is thought of those that run, and how many more are then."""
    at_s = None
    for end_s, _, count, _ in ends:
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        free += count
        if at_s is None and free >= nodes:
            at_s = max(end_s, now_s)
    return None if at_s is None else (at_s, free - nodes)


def counts(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether counting nodes is enough: all alike, open and given away whole, in the order of arrival, EASY at most."""
    if policy.parts or policy.order is not priority_then_fifo or policy.preempt is not None or policy.depth(snapshot) > 1:
        return False
    if snapshot.promised or snapshot.rules != DEFAULT or not snapshot.sites:
        return False
    cell = snapshot.sites[0].cell
    if cell.closes_s != FOREVER or not all(site.open and site.cell == cell for site in snapshot.sites):
        return False
    tasks, runs = snapshot.waiting.values(), snapshot.running.values()
    if any(task.not_before_s > snapshot.now_s for task in tasks) or any(run.grant.nodes[:1] < (0,) for run in runs):
        return False
    if any(run.surplus > 0 for run in runs):
        return False  # it may give that back
    jobs = [*tasks, *(run.task for run in runs)]
    if any(task.kind.wish.prefer_s or task.kind.choices for task in tasks):
        return False  # it may wait though it could start
    if policy.depth(snapshot) and any(task.estimate_s is None for task in jobs):
        return False  # room is kept by what is predicted then
    asks = {task.kind.ask for task in tasks} | {run.grant.ask for run in runs}
    return all(_whole(ask, cell) for ask in asks)


def _whole(ask: Ask, cell: Cell) -> bool:
    """Whether each member takes a node of which nothing is left that anybody could ask for."""
    return ask.lead is None and ask.within is None and ask.each.cpus == cell.cpus > 0 and bool(steps(cell, ask.each))
