"""A queue for whole nodes that are all alike, kept from one decision to the next: what `carry` is to the cycle, in numbers.

It gives the plans that the cycle would give (a law), as long as `counts` holds; who finds that it no longer does leaves it.
"""

from bisect import bisect_left, insort

from trainmaster.scheduling.ask import WHOLE, Ask, Shape
from trainmaster.scheduling.cells import FOREVER, steps
from trainmaster.scheduling.counted import Decision, Waiting, counts, ends_of, is_counted, waiting
from trainmaster.scheduling.explain import grouped, kept_back, refusal
from trainmaster.scheduling.order import STILL_S
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.snapshot import ARRIVED, LEFT, STARTED, Placement, Plan, Refusal, Reservation, Snapshot
from trainmaster.scheduling.space import Grant, Space, merged
from trainmaster.scheduling.task import Kind, Run, Task


class Line:
    """Who waits, in order; who runs, by its end; which nodes are free."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Of a snapshot and a policy that count (see `line_of`)."""
        assert policy.steady is not None
        self.sites, self.rules, self.policy, self.steady = snapshot.sites, snapshot.rules, policy, policy.steady
        self.changes, self.seen = snapshot.changes, len(snapshot.changes.log) if snapshot.changes is not None else 0
        self.depth, self.cell = policy.depth(snapshot), snapshot.sites[0].cell
        self.waiting = {task.id: waiting(task, self.steady(task)) for task in snapshot.waiting.values()}
        self.queue = sorted(self.waiting.values())
        self.running = dict(snapshot.running)
        self.ends = ends_of(snapshot)
        held = {node for run in self.running.values() for node in run.grant.nodes}
        self.free = [node for node in range(len(self.sites)) if node not in held]
        self.expected: dict[str, Run] = {}  # whom the last plan starts, until it is on record
        self.since_s = min((one.task.since_s for one in self.queue), default=FOREVER)  # nobody is there for longer
        self._decision: Decision | None = None  # the last one, where it may be gone on with
        self._new: list[Waiting] = []  # who has come since
        self._counted: dict[Kind, bool] = {}
        self._space = Space(self.sites)  # as it is when nothing runs
        self._devices: dict[tuple[Shape, tuple[int, ...]], tuple[int, ...]] = {}
        self._groups, self._busy, self._back = grouped(self.sites), dict[Ask, Refusal](), dict[Ask, Refusal]()

    def follow(self, snapshot: Snapshot, policy: Policy) -> bool:
        """Become what the snapshot says; False: this cannot be done, or counting is not enough for it any more."""
        changes = snapshot.changes
        if changes is None or changes is not self.changes or self.sites is not snapshot.sites or policy is not self.policy:
            return False
        if self.rules is not snapshot.rules or snapshot.promised or policy.depth(snapshot) != self.depth:
            return False
        log = changes.log
        for at in range(self.seen, len(log)):
            what, id = log[at]
            if what == ARRIVED:
                task = snapshot.waiting.get(id)
                if task is not None and id not in self.waiting and not self._arrive(task, snapshot.now_s):
                    return False
            elif what == LEFT:
                self._decision = None
                self._leave(id)
            elif what == STARTED:
                self._leave(id)
                run = snapshot.running.get(id)
                if run is not None and id not in self.running and not self._start(run):
                    return False
            else:
                self._end(id)
        self.seen = len(log)
        for id in [*self.expected]:  # a plan that nobody carried out, or of one that has ended already
            self._end(id)
        return not self._is_turn(snapshot.now_s)

    def plan(self, now_s: float) -> Plan:
        """What the cycle would plan.

        Where nobody has gone, whoever was refused would be refused again: then only those are looked at who have come.
        """
        decision = self._decision
        if decision is None or decision.early or decision.kept_s <= now_s:
            decision = self._decision = Decision(len(self.free), self.ends, self.depth > 0)
            started = decision.look(now_s, self.queue)
        else:
            started = decision.look(now_s, self._new)
        self._new = []
        placements = tuple([Placement(one.task.id, self._take(one.task, now_s)) for one in started])
        kept = () if decision.kept is None else (Reservation(decision.kept, decision.kept_s),)
        found = {}
        for ask in decision.back:
            found[ask] = self._back.get(ask) or self._back.setdefault(ask, kept_back(ask))
        for ask in decision.lacking(now_s):
            found[ask] = self._busy.get(ask) or self._busy.setdefault(ask, refusal(ask, self._groups))
        return Plan(placements, (), kept, {}, self.depth, self.policy.name, lost=found)

    def _take(self, task: Task, now_s: float) -> Grant:
        """The first nodes that are free, and what is taken of them."""
        ask, free = task.kind.ask, self.free
        nodes = tuple(free[: ask.nodes])
        del free[: ask.nodes]
        devices = tuple([self._picked(node, ask.each) for node in nodes]) if ask.each.gpu_milli else ()
        grant = Grant(ask, nodes, devices)
        self.expected[task.id] = Run(task, grant, now_s)
        return grant

    def _picked(self, node: int, shape: Shape) -> tuple[int, ...]:
        """The GPUs of a node that nothing runs on."""
        key = shape, self.sites[node].devices
        found = self._devices.get(key)
        if found is None:
            step = steps(self.cell, shape)[0]
            found = self._devices[key] = self._space.pick([WHOLE] * len(key[1]), node, shape, step)
        return found

    def _arrive(self, task: Task, now_s: float) -> bool:
        """Whether it can be counted."""
        kind = task.kind
        counted = self._counted.get(kind)
        if counted is None:
            counted = self._counted[kind] = is_counted(kind, self.cell)
        if not counted or task.not_before_s > now_s or (self.depth and task.estimate_s is None):
            return False
        one = self.waiting[task.id] = waiting(task, self.steady(task))
        if self.queue and one < self.queue[-1]:
            self._decision = None
        insort(self.queue, one)
        self._new.append(one)
        self.since_s = min(self.since_s, task.since_s)
        return True

    def _leave(self, id: str) -> None:
        one = self.waiting.pop(id, None)
        if one is not None:
            del self.queue[bisect_left(self.queue, one)]

    def _start(self, run: Run) -> bool:
        """Whether it is what the last plan asked for, at once."""
        taken = self.expected.pop(run.task.id, None)
        self.running[run.task.id] = run
        return taken is not None and taken.grant == run.grant and taken.end_s == run.end_s

    def _end(self, id: str) -> None:
        run = self.running.pop(id, None) or self.expected.pop(id, None)
        if run is not None:
            self._decision = None
            del self.ends[bisect_left(self.ends, (run.end_s, run.task.seq))]
            self.free = merged(self.free, run.grant.nodes)

    def _is_turn(self, now_s: float) -> bool:
        """Whether somebody has waited for so long that the order is another one, or will soon."""
        if now_s < self.since_s + STILL_S - 1.0:
            return False
        self.since_s = min((one.task.since_s for one in self.queue), default=FOREVER)
        return now_s >= self.since_s + STILL_S - 1.0


def line_of(snapshot: Snapshot, policy: Policy) -> Line | None:
    """The line of a snapshot; None where counting nodes is not enough."""
    if policy.steady is None or not counts(snapshot, policy):
        return None
    line = Line(snapshot, policy)
    return None if line._is_turn(snapshot.now_s) else line
