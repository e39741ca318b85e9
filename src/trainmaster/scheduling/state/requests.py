"""Which requests can fit: one comparison, in columns, of all requests with all states of nodes.

The test is necessary, and sufficient for most requests. A gang in one domain, or one whose nodes must stay for some time, is
tested exactly when it has its turn (`steps.place`).
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from trainmaster.scheduling.model.cells import Cell, Cells
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape
from trainmaster.scheduling.state.figures import Mask

Ints = npt.NDArray[np.int64]
_BLOCK = 1 << 19  # comparisons at a time: arrays of a few MB


class Columns:
    """Rows of integers in named columns. A column exists from the first row that names it."""

    def __init__(self, *names: str) -> None:
        self.count = 0
        self._at = {name: at for at, name in enumerate(names)}
        self._news: list[Mapping[str, int]] = []  # rows that are not yet in the columns
        self._room = np.zeros((len(names), 0), np.int64)

    def add(self, row: Mapping[str, int]) -> None:
        """Append a row. Columns that it does not name are 0."""
        self._news.append(row)
        self.count += 1

    def named(self, name: str) -> Ints:
        """A column."""
        self._enter()
        at = self._at.get(name)
        return np.zeros(self.count, np.int64) if at is None else self._room[at, : self.count]

    @property
    def names(self) -> Iterable[str]:
        """The names of all columns."""
        self._enter()
        return self._at

    def _enter(self) -> None:
        """Write the new rows into the columns. The array doubles when it grows, so it is rarely copied."""
        if not self._news:
            return
        for row in self._news:
            for name in row:
                self._at.setdefault(name, len(self._at))
        width, room = self._room.shape
        if width < len(self._at) or room < self.count:
            grown = np.zeros((len(self._at), max(self.count, 2 * room)), np.int64)
            grown[:width, :room] = self._room
            self._room = grown
        first = self.count - len(self._news)
        for name, at in self._at.items():
            self._room[at, first : self.count] = [row.get(name, 0) for row in self._news]
        self._news = []


class Requests:
    """All requests so far, each with its row, against the cells of one inventory."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._rows: dict[Ask, int] = {}
        self._shapes: dict[Shape, int] = {}
        self._asks = Columns("nodes", "each", "first")
        self._needs = Columns("gpus", "share", "kinds", "cpus", "memory", "pool")
        self._has = Columns("gpus", "cpus", "memory", "pool")
        self._kinds: dict[tuple[str, ...], int] = {}  # the requested sets of kinds of GPU
        self._pools: dict[str | None, int] = {None: -1}
        self._gpus: list[Columns] = []  # of each such set, by cell: whole GPUs and the largest part of one

    @property
    def count(self) -> int:
        """The number of requests."""
        return len(self._rows)

    def row(self, ask: Ask) -> int:
        """The row of a request."""
        found = self._rows.get(ask)
        if found is None:
            found = self._rows[ask] = len(self._rows)
            self._asks.add({"nodes": ask.nodes, "each": self._shape(ask.each), "first": self._shape(ask.first)})
        return found

    def fits(self, nodes: Mapping[int, int], among: Mask | None = None) -> Mask:
        """By row: whether enough nodes can give it. `nodes`: how many are in each cell. Only the rows of `among` are tested."""
        asks, able = self._asks, self._able({(number, number): count for number, count in nodes.items()}, None, among)
        enough: Mask = (able[asks.named("each")] >= asks.named("nodes")) & (able[asks.named("first")] >= 1)
        return enough

    def fits_beside(self, kept: Shape, spare: int, nodes: Mapping[tuple[int, int], int], among: Mask) -> Mask:
        """By row: whether enough nodes can give it without harm to the reservation `kept`; `spare` nodes may be harmed.

        A node is not harmed if it can give `kept` too, or could not give it anyway. `nodes`: how many are in one cell now and
        in another when the reservation begins.
        """
        asks, able = self._asks, self._able(nodes, kept, among)
        enough: Mask = able[asks.named("each")] + spare >= asks.named("nodes")
        return enough & among

    def _able(self, nodes: Mapping[tuple[int, int], int], kept: Shape | None, among: Mask | None) -> npt.NDArray[np.float64]:
        """By row of a shape: how many nodes can give it without harm to `kept`."""
        self._look()
        now, then = np.array(list(nodes), np.int64).reshape(-1, 2).T
        counts = np.fromiter(nodes.values(), np.float64, len(nodes))
        keeps = None if kept is None else np.array([bool(self._cells.steps(number, kept)) for number in then.tolist()], bool)
        able, needs, wanted = np.zeros(self._needs.count), self._needs, self._wanted(among)
        for at, gpus in enumerate(self._gpus):
            free, part = gpus.named("whole")[now], gpus.named("part")[now]
            of_kind = np.flatnonzero(wanted & (needs.named("kinds") == at))
            for whole in np.unique(needs.named("gpus")[of_kind]).tolist():  # most nodes have too few and are skipped
                cells, rows = np.flatnonzero(free >= whole), of_kind[needs.named("gpus")[of_kind] == whole]
                step = max(1, _BLOCK // max(1, len(cells)))
                for begin in range(0, len(rows) if len(cells) else 0, step):
                    some = rows[begin : begin + step]
                    gives, share = self._gives(some, now[cells]), needs.named("share")[some, None]
                    if share.any():
                        gives &= (share == 0) | (free[cells] > whole) | (part[cells] >= share)
                    if kept is not None and keeps is not None:
                        gives &= self._spares(some, then[cells], kept) | ~keeps[cells]
                    able[some] = gives.astype(np.float64) @ counts[cells]
        return able

    def _wanted(self, among: Mask | None) -> Mask:
        """A mask of the shapes of these requests."""
        if among is None:
            return np.ones(self._needs.count, bool)
        found = np.zeros(self._needs.count, bool)
        for name in ("each", "first"):
            found[self._asks.named(name)[: len(among)][among]] = True
        return found

    def _gives(self, rows: Ints, numbers: Ints) -> Mask:
        """Which of these shapes fit in which of these cells, GPUs aside."""
        needs, has = self._needs, self._has
        found = has.named("cpus")[numbers] >= needs.named("cpus")[rows, None]
        for name in needs.names:
            if name == "memory" or name.startswith("="):
                found &= has.named(name)[numbers] >= needs.named(name)[rows, None]
        if len(self._pools) > 2:
            pool = needs.named("pool")[rows, None]
            found &= (pool == -1) | (pool == has.named("pool")[numbers])
        return found

    def _spares(self, rows: Ints, numbers: Ints, kept: Shape) -> Mask:
        """Which of these shapes fit in which of these cells together with `kept`, by sums alone."""
        needs, has = self._needs, self._has
        found = (has.named("cpus")[numbers] - kept.cpus) >= needs.named("cpus")[rows, None]
        found &= (has.named("memory")[numbers] - kept.memory) >= needs.named("memory")[rows, None]
        milli = needs.named("gpus")[rows, None] * WHOLE + needs.named("share")[rows, None]
        found &= (has.named("gpus")[numbers] - kept.gpu_milli) >= milli
        return found

    def _shape(self, shape: Shape) -> int:
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = len(self._shapes)
            if shape.kinds not in self._kinds:
                self._kinds[shape.kinds] = len(self._kinds)
                self._gpus.append(Columns("whole", "part"))
            needs = {"gpus": shape.gpus, "share": shape.share, "kinds": self._kinds[shape.kinds]}
            needs |= {"cpus": shape.cpus, "memory": shape.memory, "pool": self._pool(shape.pool)}
            self._needs.add(needs | {f"={name}": amount for name, amount in shape.counted})
        return found

    def _pool(self, name: str | None) -> int:
        return self._pools.setdefault(name, len(self._pools))

    def _look(self) -> None:
        """Add the cells that are new."""
        values = self._cells.values
        for cell in values[self._has.count :]:
            has = {"gpus": cell.gpu_milli, "cpus": cell.cpus, "memory": cell.memory, "pool": self._pool(cell.pool)}
            self._has.add(has | {f"={name}": amount for name, amount in cell.counted})
        for kinds, gpus in zip(self._kinds, self._gpus, strict=True):
            for cell in values[gpus.count :]:
                gpus.add(_gpus(cell, kinds))


def _gpus(cell: Cell, kinds: tuple[str, ...]) -> Mapping[str, int]:
    """The free GPUs of these kinds on a node; (): of all kinds."""
    takes = [not kinds or kind in kinds for kind in cell.kinds]
    whole = sum(count for count, right in zip(cell.whole, takes, strict=True) if right)
    return {"whole": whole, "part": max((free for kind, free in cell.parts if takes[kind]), default=0)}
