"""When jobs start on equal nodes, whole ones, under `fifo` or `easy`: by counting nodes. An oracle for `forward.starts`."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.fifo import FIRST_COME
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.state.order import Key, waited_long

End = tuple[float, int, int, str]  # as it is thought of, of which job (its seq), nodes, id


class Waiting(NamedTuple):
    """A job in the queue, which is in the order of these."""

    key: Key
    seq: int
    nodes: int
    estimate_s: float
    task: Task


def waiting(task: Task, key: Key) -> Waiting:
    """A job as it is counted."""
    return Waiting(key, task.seq, task.kind.ask.nodes, FOREVER if task.estimate_s is None else task.estimate_s, task)


class Counted:
    """A snapshot in numbers of nodes: `free` now, the queue in order, those that run by the end that is thought of them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.now_s = snapshot.now_s
        self.depth = policy.depth(snapshot)
        self.queue = sorted([waiting(task, FIRST_COME.key(snapshot, task)) for task in snapshot.waiting.values()])
        self.ends = ends_of(snapshot)
        self.free = len(snapshot.sites) - sum(end[2] for end in self.ends)

    def starts(self, lives: Mapping[str, float], wanted: Collection[str]) -> dict[str, float]:
        """As `forward.starts`."""
        now_s, free, queue, ends = self.now_s, self.free, self.queue, list(self.ends)
        missing, began_s, late_s = set(wanted), dict[str, float](), _late_s(queue)
        truly = [(now_s + lives[end[3]], end) for end in ends]
        heapify(truly)
        while True:
            started = _start(now_s, free, ends, queue, room=self.depth > 0)
            if started:
                gone = {one.seq for one in started}
                queue = [one for one in queue if one.seq not in gone]
            for one in started:
                id = one.task.id
                free -= one.nodes
                began_s[id] = now_s
                heappush(truly, (now_s + lives[id], (now_s + one.estimate_s, one.seq, one.nodes, id)))
                missing.discard(id)
            if not missing or not truly:
                return {id: began_s[id] for id in wanted if id in began_s}
            now_s = max(now_s, truly[0][0])
            while truly and truly[0][0] <= now_s:
                end = heappop(truly)[1]
                free += end[2]
                del ends[bisect_left(ends, end)]
            if now_s >= late_s:
                queue = _again(queue, now_s)
                late_s = _late_s(queue)


def _late_s(queue: Iterable[Waiting]) -> float:
    """When the next job of `queue` will have waited for too long: then the order is another."""
    return min((one.task.since_s + one.task.kind.wait_max_s for one in queue if one.key[0]), default=FOREVER)


def _again(queue: Iterable[Waiting], now_s: float) -> list[Waiting]:
    """The queue in its order at this time."""
    return sorted([one._replace(key=(not waited_long(now_s, one.task), *one.key[1:])) for one in queue])


def _start(now_s: float, free: int, ends: list[End], queue: Sequence[Waiting], *, room: bool) -> list[Waiting]:
    """Those of `queue` that start, which are entered into `ends`; `room`: it is kept for the first that does not."""
    refused, started, kept_s, spare = set[Kind](), list[Waiting](), FOREVER, 0
    for one in queue:
        if not free and not room:
            break  # nothing is left
        _, seq, nodes, estimate_s, task = one
        end_s = now_s + estimate_s
        late = end_s > kept_s
        if task.kind in refused:
            continue
        if nodes <= free and (not late or nodes <= spare):
            spare -= nodes if late else 0
            free -= nodes
            insort(ends, (end_s, seq, nodes, task.id))
            started.append(one)
            continue
        refused.add(task.kind)
        found = _earliest(free, nodes, ends, now_s) if room else None
        if found is not None:
            (kept_s, spare), room = found, False
    return started


def ends_of(snapshot: Snapshot) -> list[End]:
    """Those that run, by the end that is thought of them."""
    runs = snapshot.running.values()
    return sorted([(run.end_s, run.task.seq, len(run.grant.nodes), run.task.id) for run in runs])


def _earliest(free: int, nodes: int, ends: list[End], now_s: float) -> tuple[float, int] | None:
    """When `nodes` are free by what is thought of those that run, and how many more are then."""
    at_s = None
    for end_s, _, count, _ in ends:
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        free += count
        if at_s is None and free >= nodes:
            at_s = max(end_s, now_s)
    return None if at_s is None else (at_s, free - nodes)
