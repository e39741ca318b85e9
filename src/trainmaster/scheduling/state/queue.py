"""The queue: waiting jobs of one kind form a line, and the lines of an owner are sorted."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable

from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.state.figures import Row, Rows, row_of
from trainmaster.scheduling.state.order import Key, Sharing
from trainmaster.scheduling.state.requests import Requests

Entry = tuple[Key, int, Task]  # rank, order of submission, job


class Line(list[Entry]):
    """Waiting jobs of one kind, sorted. Under an order that ranks each job by itself, a line has one job."""

    def __init__(self, at: int, request: int, plain: bool) -> None:
        """`at`: its row among all lines. `request`: the row in `Requests`. `plain`: see `Kind.plain`."""
        super().__init__()
        self.at, self.request, self.plain = at, request, plain

    @property
    def row(self) -> Row:
        """The numbers of its head, then the row of its request, and the run time that the head states.

        The run time is 0 if other jobs are behind the head or it states none: they could end at once.
        """
        task = self[0][2]
        said_s = task.estimate_s if len(self) == 1 and task.estimate_s is not None else 0.0
        return row_of(task, self.request, said_s)


Head = tuple[Key, int, Line, int]  # rank, order of submission, line, place in the line


class Queue:
    """The waiting jobs in lines, and the sorted heads of the lines by owner."""

    def __init__(self, sharing: Sharing | None, tasks: Iterable[Task], requests: Requests) -> None:
        self._sharing, self._requests = sharing, requests
        self.tasks = {task.id: task for task in tasks}
        self.lines: dict[Kind | str, Line] = {}
        self.all: list[Line] = []  # by row
        self.rows = Rows(10)
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
        """A job joins the queue."""
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
        """A job starts or leaves."""
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
