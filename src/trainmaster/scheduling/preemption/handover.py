"""Nodes that some give back for others: held for those until the last of the first is gone, and nobody else's meanwhile.

This is what stops thrash when those who make way leave at different times: what has become free waits for whom it was freed.
"""

from collections.abc import Collection, Sequence

from trainmaster.scheduling.admission.windows import need_of
from trainmaster.scheduling.model.jobs import Run, Task, alone
from trainmaster.scheduling.model.snapshot import Refusal, Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.model.words import given_up
from trainmaster.scheduling.reservation.timeline import End, Ends
from trainmaster.scheduling.state.cluster import ClusterState


class Promises:
    """Within one decision: who makes way, and what is promised of it. The space is put back by `end`."""

    def __init__(self, snapshot: Snapshot, state: ClusterState) -> None:
        self._snapshot, self._state = snapshot, state
        self._leaving: dict[int, list[Run]] = {}  # those who make way, by node
        self._gone: dict[str, Run] = {}
        self._held: list[tuple[Task, Grant]] = []
        self.settled: dict[str, Task] = {}  # need not be tried: they start, or wait for what is theirs; kinds of it alone
        self.told: dict[str, Refusal] = {}
        self.broken: list[str] = []

    def begin(self) -> list[tuple[Task, Grant]]:
        """Those that find free what was promised to them, in their turn: it is taken. For others it is held."""
        snapshot, space, tally = self._snapshot, self._state.space, self._state.tally
        tasks = sorted((snapshot.waiting[id] for id in snapshot.promised if id in snapshot.waiting), key=_turn)
        if not tasks:
            return []
        stopping = [run for run in self._state.running.all if run.stopping]
        ready, coming = [], []
        for task in tasks:
            grant = snapshot.promised[task.id]
            if not self._stays(task, grant):
                self.broken.append(task.id)
            elif space.has(grant) and task.not_before_s <= snapshot.now_s and not self._shut(task, grant):
                space.hold(grant)
                self._state.plan(task, grant)
                self.settled[task.id] = task._replace(kind=alone(task.kind, grant.ask))
                ready.append((task, grant))
            else:
                coming.append((task, grant))
        for task, grant in coming:
            barred = self._shut(task, grant)
            theirs = [run for run in stopping if barred or not set(run.freed.nodes).isdisjoint(grant.nodes)]
            self.let_go([run for run in theirs if run.task.id not in self._gone])
            if not space.has(grant) or self._shut(task, grant):
                self.broken.append(task.id)
                continue
            space.hold(grant)
            tally.enter(task.kind, grant)
            self._held.append((task, grant))
            self.settled[task.id] = task._replace(kind=alone(task.kind, grant.ask))
            theirs = [run for run in self._gone.values() if barred or set(run.freed.nodes) & set(grant.nodes)]
            ids = {run.task.id for run in theirs}
            self.told[task.id] = Refusal("handover", given_up(ids, self.shrunk(ids)))
        return ready

    def _stays(self, task: Task, grant: Grant) -> bool:
        """Whether no window closes its nodes too early: of a node that it has held all the while that was known before."""
        space = self._state.space
        if task.keeps or not space.closing:
            return True
        until_s = self._snapshot.now_s + need_of(task.kind, task.estimate_s, self._snapshot.rules).least_s
        return all(node < 0 or space.sites[node].cell.closes_s >= until_s for node in grant.nodes)

    def _shut(self, task: Task, grant: Grant) -> bool:
        """Whether quota stands in its way: of what it has held all the while it does not."""
        return not task.keeps and self._state.tally.barrier(task.kind, grant) is not None

    def before(self, task: Task, grant: Grant) -> set[str]:
        """Who must be gone before this can be had; it is taken out of the space already. Nobody: it is free now."""
        found = set[str]()
        for node in grant.nodes if self._leaving else ():
            runs = self._leaving.get(node, ())
            if runs and not self._beside(node, runs):
                found |= {run.task.id for run in runs}
        if self._gone and not found and not self._state.tally.idle and self._barred(task, grant):
            found = set(self._gone)
        return found

    def shrunk(self, ids: set[str]) -> tuple[str, ...]:
        """Those of them, all of whom make way, who go on with less."""
        return tuple(sorted(id for id in ids if self._gone[id].shrinking))

    def _barred(self, task: Task, grant: Grant) -> bool:
        """Whether quota stands in its way as long as those that make way are there."""
        tally = self._state.tally
        gone = self._gone.values()
        tally.leave(gone, -1)
        barred = tally.barrier(task.kind, grant) is not None
        tally.leave(gone)
        return barred

    def _beside(self, node: int, runs: list[Run]) -> bool:
        """Whether a node has enough for those that make way and for all that is given of it besides."""
        space = self._state.space
        parts = [run.freed.part(index, -1) for run in runs for index in _members(run.freed, node)]
        if space.cells.left[space.of[node]][0] < sum([part.shape.gpu_milli for part in parts]):
            return False  # most questions end here
        number, free = space.of[node], space.free[node].copy()
        for part in parts:
            number = space.after(node, part, number, free)
        cell = space.cells.values[number]
        return min((cell.cpus, cell.memory, *(amount for _, amount in cell.counted), *free)) >= 0

    def staying(self, ends: Ends) -> Ends:
        """These without those that make way, who have given back already; of one that shrinks, what it keeps."""
        if not self._gone:
            return ends
        found: list[End] = []
        for end_s, seq, run in ends:
            going = self._gone.get(run.task.id)
            if going is None:
                found.append((end_s, seq, run))
            elif going.shrinking:
                found.append((end_s, seq, run._replace(grant=going.least)))
        return found

    def let_go(self, runs: Sequence[Run]) -> None:
        """They make way: what they give back is there to be given."""
        for run in runs:
            self._gone[run.task.id] = run
            for node in run.freed.nodes:
                self._leaving.setdefault(node, []).append(run)
        self._state.space.give(*(run.freed for run in runs))
        self._state.tally.leave(runs)

    def keep(self, runs: Sequence[Run]) -> None:
        """They do not make way after all."""
        for run in runs:
            del self._gone[run.task.id]
            for node in run.freed.nodes:
                self._leaving[node].remove(run)
        self._hold(runs)

    def end(self) -> None:
        """Put the space back as those that run have it."""
        for task, grant in self._held:
            self._state.space.give(grant)
            self._state.tally.enter(task.kind, grant, -1)
        self._hold(self._gone.values())

    def _hold(self, runs: Collection[Run]) -> None:
        if not runs:
            return
        self._state.space.hold(*(run.freed for run in runs))
        self._state.tally.leave(runs, -1)


def _turn(task: Task) -> tuple[bool, int]:
    """Who goes on with what it kept is first: else one to whom others are still to give might take that meanwhile."""
    return not task.keeps, task.seq


def _members(grant: Grant, node: int) -> list[int]:
    return [index for index, one in enumerate(grant.nodes) if one == node]
