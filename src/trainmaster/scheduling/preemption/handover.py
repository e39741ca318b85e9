"""Handovers: nodes of victims are reserved for their preemptor until the last victim has exited.

This prevents thrash when victims exit at different times: nodes that are free wait for the job that they were freed for.
"""

from collections.abc import Collection, Sequence

from trainmaster.scheduling.admission.windows import need_of
from trainmaster.scheduling.model.jobs import Run, Task, alone
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.model.words import given_up
from trainmaster.scheduling.reservation.timeline import End, Ends
from trainmaster.scheduling.state.cluster import ClusterState


class Promises:
    """Within one decision: the victims, and which jobs their nodes are promised to. `end` restores the space."""

    def __init__(self, snapshot: Snapshot, state: ClusterState) -> None:
        self._snapshot, self._state = snapshot, state
        self._leaving: dict[int, list[Run]] = {}  # victims by node
        self._gone: dict[str, Run] = {}
        self._held: list[tuple[Task, Grant]] = []
        self.settled: dict[str, Task] = {}  # they start, or wait for their own nodes; with the kind of that grant alone
        self.told: dict[str, Refusal] = {}
        self.broken: list[str] = []

    def begin(self) -> list[tuple[Task, Grant]]:
        """The jobs whose promised nodes are all free, in order; these are taken. The nodes of the others are held."""
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
            self.told[task.id] = Refusal(Reason.HANDOVER, given_up(ids, self.shrunk(ids)))
        return ready

    def _stays(self, task: Task, grant: Grant) -> bool:
        """Whether no window closes the nodes too early. Nodes that the job kept while it shrank were checked at its start."""
        space = self._state.space
        if task.keeps or not space.closing:
            return True
        until_s = self._snapshot.now_s + need_of(task.kind, task.estimate_s, self._snapshot.rules).least_s
        return all(node < 0 or space.sites[node].cell.closes_s >= until_s for node in grant.nodes)

    def _shut(self, task: Task, grant: Grant) -> bool:
        """Whether a quota bars the job. None does for nodes that it kept while it shrank."""
        return not task.keeps and self._state.tally.barrier(task.kind, grant) is not None

    def before(self, task: Task, grant: Grant) -> set[str]:
        """The victims that must exit before `grant`, which is already taken, can be used. Empty: it is free now."""
        found = set[str]()
        for node in grant.nodes if self._leaving else ():
            runs = self._leaving.get(node, ())
            if runs and not self._beside(node, runs):
                found |= {run.task.id for run in runs}
        if self._gone and not found and not self._state.tally.idle and self._barred(task, grant):
            found = set(self._gone)
        return found

    def shrunk(self, ids: set[str]) -> tuple[str, ...]:
        """Those of the victims `ids` that only shrink."""
        return tuple(sorted(id for id in ids if self._gone[id].shrinking))

    def _barred(self, task: Task, grant: Grant) -> bool:
        """Whether a quota bars the job as long as the victims run."""
        tally = self._state.tally
        gone = self._gone.values()
        tally.stay(gone)
        barred = tally.barrier(task.kind, grant) is not None
        tally.leave(gone)
        return barred

    def _beside(self, node: int, runs: list[Run]) -> bool:
        """Whether a node has enough for its victims and for everything else that is given of it."""
        space = self._state.space
        parts = [run.freed.part(index, -1) for run in runs for index in _members(run.freed, node)]
        if space.cells.left[space.of[node]][0] < sum([part.shape.gpu_milli for part in parts]):
            return False  # the usual case
        number, free = space.of[node], space.free[node].copy()
        for part in parts:
            number = space.after(node, part, number, free)
        cell = space.cells.values[number]
        return min((cell.cpus, cell.memory, *(amount for _, amount in cell.counted), *free)) >= 0

    def staying(self, ends: Ends) -> Ends:
        """These ends without the victims, which have freed their nodes. A victim that shrinks stays on the nodes it keeps."""
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
        """Make these jobs victims: their nodes can be given."""
        for run in runs:
            self._gone[run.task.id] = run
            for node in run.freed.nodes:
                self._leaving.setdefault(node, []).append(run)
        self._state.space.give(*(run.freed for run in runs))
        self._state.tally.leave(runs)

    def keep(self, runs: Sequence[Run]) -> None:
        """These jobs are no victims after all."""
        for run in runs:
            del self._gone[run.task.id]
            for node in run.freed.nodes:
                self._leaving[node].remove(run)
        self._hold(runs)

    def end(self) -> None:
        """Restore the space to what the running jobs hold."""
        for task, grant in self._held:
            self._state.space.give(grant)
            self._state.tally.enter(task.kind, grant, -1)
        self._hold(self._gone.values())

    def _hold(self, runs: Collection[Run]) -> None:
        if not runs:
            return
        self._state.space.hold(*(run.freed for run in runs))
        self._state.tally.stay(runs)


def _turn(task: Task) -> tuple[bool, int]:
    """A job that shrank comes first: else another handover could take the nodes that it kept."""
    return not task.keeps, task.seq


def _members(grant: Grant, node: int) -> list[int]:
    return [index for index, one in enumerate(grant.nodes) if one == node]
