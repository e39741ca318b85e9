"""What a node has left, as a value. Nodes in the same cell are alike to every request: a question is asked once per cell.

A cluster of ten thousand nodes is in a few dozen cells at a time; which cell a node goes to when it gives a request its part,
or gets it back, is found out once and looked up from then on.
"""

from functools import lru_cache
from typing import NamedTuple

from trainmaster.scheduling.ask import WHOLE, Amounts, Shape

FOREVER = float("inf")


class Cell(NamedTuple):
    """`kinds` are the GPU kinds of the node, sorted; `whole[i]` counts free devices of `kinds[i]`; `parts` are the devices that
    are given away in part, as (index of the kind, thousandths free), sorted; one with nothing left is not told of.
    """

    kinds: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    cpus: int = 0
    memory: int = 0
    counted: Amounts = ()
    pool: str = ""
    closes_s: float = FOREVER  # nothing may run on it then

    @property
    def gpu_milli(self) -> int:
        """GPUs that are free, in thousandths."""
        return sum(self.whole) * WHOLE + sum(free for _, free in self.parts)


class Step(NamedTuple):
    """One way for a node to give a shape. A share comes from the GPU `device`: (index of its kind, thousandths free)."""

    cell: Cell
    device: tuple[int, int] | None = None
    whole: tuple[int, ...] = ()  # devices taken of each kind


@lru_cache(maxsize=1 << 18)
def steps(cell: Cell, shape: Shape) -> tuple[Step, ...]:
    """Every way in which a node in `cell` can give `shape`, the tightest device first; () where it does not fit."""
    if cell.cpus < shape.cpus or cell.memory < shape.memory or shape.pool not in (None, cell.pool):
        return ()
    if shape.gpus and sum(n for n, kind in zip(cell.whole, cell.kinds, strict=True) if shape.takes(kind)) < shape.gpus:
        return ()  # before anything is put together: most questions end here
    counted = _less(cell.counted, shape.counted)
    if counted is None:
        return ()
    rest = cell._replace(cpus=cell.cpus - shape.cpus, memory=cell.memory - shape.memory, counted=counted)
    bare = ((rest, ()),) if not shape.gpus else _whole(rest, shape)
    if not shape.share:
        return tuple(Step(after, None, taken) for after, taken in bare)
    return tuple(step for after, taken in bare for step in _shares(after, shape, taken))


def _whole(cell: Cell, shape: Shape) -> tuple[tuple[Cell, tuple[int, ...]], ...]:
    """Whole devices, of the kind that is asked for or of any, in the order of the kinds."""
    left, whole, taken = shape.gpus, list(cell.whole), [0] * len(cell.whole)
    for i, kind in enumerate(cell.kinds):
        if shape.takes(kind):
            taken[i] = min(left, whole[i])
            whole[i] -= taken[i]
            left -= taken[i]
    return ((cell._replace(whole=tuple(whole)), tuple(taken)),) if not left else ()


def _shares(cell: Cell, shape: Shape, taken: tuple[int, ...]) -> list[Step]:
    """A share of one device: of each that has it, one that is given away in part before a whole one."""
    found = []
    for device in sorted(set(cell.parts), key=lambda part: (part[1], part[0])):
        if device[1] >= shape.share and shape.takes(cell.kinds[device[0]]):
            parts = list(cell.parts)
            parts.remove(device)
            found.append(Step(cell._replace(parts=_with(parts, device[0], device[1] - shape.share)), device, taken))
    for i, kind in enumerate(cell.kinds):
        if cell.whole[i] and shape.takes(kind):
            whole = tuple(count - (i == j) for j, count in enumerate(cell.whole))
            after = cell._replace(whole=whole, parts=_with(list(cell.parts), i, WHOLE - shape.share))
            found.append(Step(after, (i, WHOLE), taken))
    return found


def _with(parts: list[tuple[int, int]], kind: int, free: int) -> tuple[tuple[int, int], ...]:
    return tuple(sorted([*parts, (kind, free)])) if free else tuple(parts)


def _less(have: Amounts, want: Amounts) -> Amounts | None:
    """What is left; None where it is not enough. A name that is used up stays, at 0."""
    if not want:
        return have
    left = dict(have)
    for name, amount in want:
        left[name] = left.get(name, 0) - amount
        if left[name] < 0:
            return None
    return tuple(sorted(left.items()))
