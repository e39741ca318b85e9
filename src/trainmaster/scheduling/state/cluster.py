"""The state that a decision reads: free capacity, the queue and the running jobs. Each event changes a little of it.

Law: after any events it equals a state that is built anew from the same snapshot. A decision leaves only its starts in it
(`planned`). Their nodes stay taken until the start is on record. `settle` frees those of starts that were not carried out.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any

from trainmaster.scheduling.admission.quota import Tally
from trainmaster.scheduling.model.jobs import Run, Task, by_kind
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant, Space
from trainmaster.scheduling.model.usage import Holdings
from trainmaster.scheduling.state.figures import Rows, row_of
from trainmaster.scheduling.state.inventory import Inventory
from trainmaster.scheduling.state.order import Sharing
from trainmaster.scheduling.state.queue import Queue
from trainmaster.scheduling.state.requests import Requests

_WORN = 50_000


class Running:
    """The running jobs: by id, by their ends as their time limits say, and as rows."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.by_id: dict[str, Run] = {}
        self.all: list[Run] = []  # by their rows
        self.rows = Rows(12)
        self.ends: list[tuple[float, int, Run]] = []
        self.wide: set[str] = set()  # elastic jobs that have more nodes than their minimum
        self._at: dict[str, int] = {}
        for run in runs:
            self._enter(run)
            self.ends.append((run.end_s, run.task.seq, run))
        self.ends.sort()

    def enter(self, run: Run) -> None:
        """Add a job that has started."""
        self._enter(run)
        insort(self.ends, (run.end_s, run.task.seq, run))

    def _enter(self, run: Run) -> None:
        id = run.task.id
        self.by_id[id], self._at[id] = run, len(self.all)
        self.all.append(run)
        self.rows.add(row_of(run.task, run.placed_s, run.grant.ask.gpu_milli, run.stopping, run.doublings))
        if run.surplus > 0:
            self.wide.add(id)

    def leave(self, id: str) -> Run:
        """Remove a job that no longer runs."""
        run, at, last = self.by_id.pop(id), self._at.pop(id), self.all.pop()
        if last is not run:
            self.all[at] = last
            self._at[last.task.id] = at
        self.rows.remove(at)
        self.wide.discard(id)
        del self.ends[bisect_left(self.ends, (run.end_s, run.task.seq))]
        return run


class ClusterState:
    """The state of one inventory. `sharing`: the order in which lines are kept, if any.

    `learned` is what policies derived from the past. It may be thrown away.
    """

    def __init__(self, snapshot: Snapshot, sharing: Sharing | None) -> None:
        self.sharing, self.inventory = sharing, Inventory(snapshot.sites, snapshot.rules)
        self.space = Space(snapshot.sites, self.inventory.cells, (run.grant for run in snapshot.running.values()))
        self.requests = Requests(self.inventory.cells)
        self.queue = Queue(sharing, snapshot.waiting.values(), self.requests)
        self.running = Running(snapshot.running.values())
        self.tally, self.planned = Tally(snapshot.rules, snapshot.sites), dict[str, tuple[Task, Grant]]()
        alike, holdings = by_kind(snapshot.running.values()), Holdings()
        self.tally.fill(alike)
        holdings.fill(alike)
        self.learned: dict[str, Any] = {"holdings": holdings}

    @property
    def worn(self) -> bool:
        """Whether most of its requests and cells are no longer in use. Then a new state is smaller."""
        return self.requests.count + len(self.inventory.cells.values) > _WORN + 8 * len(self.queue.tasks)

    def arrive(self, task: Task) -> None:
        """A job joins the queue."""
        self.queue.enter(task)

    def leave(self, id: str) -> None:
        """A job leaves the queue without a start."""
        self.queue.leave(id)

    def start(self, run: Run) -> None:
        """A job starts on its nodes."""
        id = run.task.id
        self.queue.leave(id)
        self.running.enter(run)
        self.learned["holdings"].enter(run)
        task, taken = self.planned.pop(id, (None, None))
        if task is not None and task.kind is run.task.kind and taken == run.grant:
            return  # its nodes are taken already
        if task is not None and taken is not None:
            self._give_up(task, taken)
        self.space.hold(run.grant)
        self.tally.enter(run.task.kind, run.grant)

    def end(self, id: str) -> None:
        """A job ends and frees its nodes."""
        run = self.running.leave(id)
        self.space.give(run.grant)
        self.tally.enter(run.task.kind, run.grant, -1)
        self.learned["holdings"].enter(run, -1)

    def plan(self, task: Task, grant: Grant) -> None:
        """A decision starts this job. `grant` is already taken from the space."""
        self.planned[task.id] = task, grant
        self.tally.enter(task.kind, grant)

    def settle(self) -> None:
        """Free the nodes of starts of the last decision that were not carried out."""
        planned, self.planned = self.planned, {}
        for task, grant in planned.values():
            self._give_up(task, grant)

    def _give_up(self, task: Task, grant: Grant) -> None:
        self.space.give(grant)
        self.tally.enter(task.kind, grant, -1)
