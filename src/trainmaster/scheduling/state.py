"""What a decision reads: the free capacity, the queue and what runs. Each event changes a little of it.

After any events it equals the state that is made of the same world at once: a law. A decision keeps nothing in it but what it
started (`planned`): that stays taken until the start is on record, and is given back where it was not carried out.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from typing import Any

from trainmaster.scheduling.fair import Holdings
from trainmaster.scheduling.figures import Row, Rows, row_of
from trainmaster.scheduling.inventory import Inventory
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.quota import Tally
from trainmaster.scheduling.requests import Requests
from trainmaster.scheduling.sharing import Sharing
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Grant, Space
from trainmaster.scheduling.task import Kind, Run, Task, by_kind

_WORN = 50_000
Entry = tuple[Key, int, Task]  # rank, order of submission, who


class Line(list[Entry]):
    """Waiting jobs of one kind, in their order; where each is ranked by itself, one job."""

    def __init__(self, at: int, request: int, plain: bool) -> None:
        """`at`: its row among all lines; `request`: that in `Requests`; `plain`: they would take nothing else."""
        super().__init__()
        self.at, self.request, self.plain = at, request, plain

    @property
    def row(self) -> Row:
        """The figures of its head, then its request, and how long its head says that it runs.

        0 where others are behind the head, or it says nothing: they may end at once, for all that is known.
        """
        task = self[0][2]
        said_s = task.estimate_s if len(self) == 1 and task.estimate_s is not None else 0.0
        return row_of(task, self.request, said_s)


Head = tuple[Key, int, Line, int]  # rank, order of submission, the line that it is in, its place there


class Queue:
    """The waiting jobs in lines, and the heads of these by owner, each in order."""

    def __init__(self, sharing: Sharing | None, tasks: Iterable[Task], requests: Requests) -> None:
        self._sharing, self._requests = sharing, requests
        self.tasks = {task.id: task for task in tasks}
        self.lines: dict[Kind | str, Line] = {}
        self.all: list[Line] = []  # by their rows
        self.rows = Rows(9)
        self.heads: dict[Hashable, list[Head]] = {}
        entries: dict[Kind | str, list[Entry]] = {}
        for task in self.tasks.values():
            entries.setdefault(self._name(task), []).append((self._rank(task), task.seq, task))
        for name, some in entries.items():
            line = self._begin(name, sorted(some))
            self.heads.setdefault(self._owner(line[0][2]), []).append((*line[0][:2], line, 0))
        for heads in self.heads.values():
            heads.sort()

    def enter(self, task: Task) -> None:
        """A job arrives."""
        self.tasks[task.id] = task
        name, entry = self._name(task), (self._rank(task), task.seq, task)
        line = self.lines.get(name)
        if line is None:
            self._head(self._begin(name, [entry]))
            return
        first = entry < line[0]
        if first:
            self._unhead(line)
        insort(line, entry)
        if first:
            self._head(line)
        if first or len(line) == 2:
            self.rows.put(line.at, line.row)

    def leave(self, id: str) -> None:
        """A job starts, or is gone."""
        task = self.tasks.pop(id, None)
        if task is None:
            return
        name = self._name(task)
        line = self.lines[name]
        at = bisect_left(line, (self._rank(task), task.seq))
        if not at:
            self._unhead(line)
        del line[at]
        if not line:
            self._remove(name, line)
            return
        if not at:
            self._head(line)
        if not at or len(line) == 1:
            self.rows.put(line.at, line.row)

    def _begin(self, name: Kind | str, entries: list[Entry]) -> Line:
        kind = entries[0][2].kind
        line = self.lines[name] = Line(len(self.all), self._requests.row(kind.ask), kind.plain)
        line.extend(entries)
        self.all.append(line)
        self.rows.add(line.row)
        return line

    def _remove(self, name: Kind | str, line: Line) -> None:
        last = self.all.pop()
        if last is not line:
            self.all[line.at], last.at = last, line.at
        self.rows.remove(line.at)
        del self.lines[name]

    def _head(self, line: Line) -> None:
        insort(self.heads.setdefault(self._owner(line[0][2]), []), (*line[0][:2], line, 0))

    def _unhead(self, line: Line) -> None:
        owner = self._owner(line[0][2])
        heads = self.heads[owner]
        del heads[bisect_left(heads, line[0][:2])]
        if not heads:
            del self.heads[owner]

    def _name(self, task: Task) -> Kind | str:
        return task.id if self._sharing is None else task.kind

    def _owner(self, task: Task) -> Hashable:
        return None if self._sharing is None else self._sharing.owner(task.kind)

    def _rank(self, task: Task) -> Key:
        return () if self._sharing is None else self._sharing.rank(task)


class Running:
    """Those that run: by id, by their ends as they say, and as rows."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.by_id: dict[str, Run] = {}
        self.all: list[Run] = []  # by their rows
        self.rows = Rows(11)
        self.ends: list[tuple[float, int, Run]] = []
        self.wide: set[str] = set()  # those that have more nodes than their least
        self._at: dict[str, int] = {}
        for run in runs:
            self._enter(run)
            self.ends.append((run.end_s, run.task.seq, run))
        self.ends.sort()

    def enter(self, run: Run) -> None:
        """One more."""
        self._enter(run)
        insort(self.ends, (run.end_s, run.task.seq, run))

    def _enter(self, run: Run) -> None:
        id = run.task.id
        self.by_id[id], self._at[id] = run, len(self.all)
        self.all.append(run)
        self.rows.add(row_of(run.task, run.placed_s, run.grant.ask.gpu_milli, run.stopping, run.task.evictions))
        if run.surplus > 0:
            self.wide.add(id)

    def leave(self, id: str) -> Run:
        """One less."""
        run, at, last = self.by_id.pop(id), self._at.pop(id), self.all.pop()
        if last is not run:
            self.all[at] = last
            self._at[last.task.id] = at
        self.rows.remove(at)
        self.wide.discard(id)
        del self.ends[bisect_left(self.ends, (run.end_s, run.task.seq))]
        return run


class ClusterState:
    """Of one inventory; `sharing`: the order in which lines are kept, if any. `learned` is what policies found out in the past
    and may be thrown away.
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
        """Whether most of the requests and cells that it knows are of long ago: one that is made anew is smaller."""
        return self.requests.count + len(self.inventory.cells.values) > _WORN + 8 * len(self.queue.tasks)

    def arrive(self, task: Task) -> None:
        """A job comes into the queue."""
        self.queue.enter(task)

    def leave(self, id: str) -> None:
        """A job is gone from the queue without a start."""
        self.queue.leave(id)

    def start(self, run: Run) -> None:
        """A job has its nodes."""
        id = run.task.id
        self.queue.leave(id)
        self.running.enter(run)
        self.learned["holdings"].enter(run)
        task, taken = self.planned.pop(id, (None, None))
        if task is not None and task.kind is run.task.kind and taken == run.grant:
            return  # it is taken already
        if task is not None and taken is not None:
            self._give_up(task, taken)
        self.space.hold(run.grant)
        self.tally.enter(run.task.kind, run.grant)

    def end(self, id: str) -> None:
        """A job gives its nodes back."""
        run = self.running.leave(id)
        self.space.give(run.grant)
        self.tally.enter(run.task.kind, run.grant, -1)
        self.learned["holdings"].enter(run, -1)

    def plan(self, task: Task, grant: Grant) -> None:
        """A decision starts this job; `grant` is taken out of the space already."""
        self.planned[task.id] = task, grant
        self.tally.enter(task.kind, grant)

    def settle(self) -> None:
        """Give back what the last decision started and nobody carried out."""
        planned, self.planned = self.planned, {}
        for task, grant in planned.values():
            self._give_up(task, grant)

    def _give_up(self, task: Task, grant: Grant) -> None:
        self.space.give(grant)
        self.tally.enter(task.kind, grant, -1)
