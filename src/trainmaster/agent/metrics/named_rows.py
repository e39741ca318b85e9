"""Values in tables with several columns whose rows begin with a name: of a metric (Ludwig), or of a model (Cornac)."""

from __future__ import annotations

import re

from trainmaster.agent.metrics.pairs import under
from trainmaster.agent.metrics.vocabulary import NUMBER, RANKS, is_exact, measured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Found = Optional[tuple[Optional[int], dict[str, float]]]

RULE = "-=─━+|┼┬┴├┤┌┐└┘┏┓┳┡┩╇ "  # of which the line around a table is made
NAME = re.compile(r"[A-Za-z_#%][\w./@%()\- ]{0,60}\Z")
CELL = re.compile(NUMBER + r"%?\Z")

_PARTS = frozenset(("train", "training", "val", "valid", "validation", "vali", "dev", "eval", "test"))
_LINE = RULE + "╒═╤╕╞╪╡╘╧╛┝┿┥:"


class NamedRows:
    """A table of what was measured of each part of the data: `| loss | 0.5 | 0.6 |` below `| | train | test |`.

    Or of what was measured of each model: `MF | 0.39 | 0.49` below ` | MAE | RMSE`, perhaps below `TEST:`.
    Or of each part of the data in rows: `| train | 0.5 | 0.6 |` below `| rating | loss | accuracy |`.
    Of the first, what is not named as measured is read below a row that is: the table may be of the sizes of the data.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._measured = False
        self._of_models = False
        self._part = ""  # that a line above the header names
        self._of_rows: list[str] = []  # the columns, if each row is of a part

    @property
    def open(self) -> bool:
        """Whether rows may follow."""
        return bool(self._columns)

    def feed(self, cells: list[str]) -> tuple[bool, Found]:
        """(whether the line belongs to such a table, what it says). `cells`: of the line, as its bars divide it."""
        if not "".join(cells).strip(_LINE):
            return False, None  # a line between the rows
        edged = len(cells) > 1 and not cells[0] and not cells[-1]
        name, *given = [cell.strip() for cell in (cells[1:-1] if edged else cells)]
        if len(given) < 2:
            self._columns = self._of_rows = []
            self._part = name[:-1].lower() if name.endswith(":") and name[:-1].lower() in _PARTS else self._part
            return False, None
        if name.lower() in _PARTS and len(given) == len(self._of_rows):
            return True, (None, self._of_row(name.lower(), given))
        if self._header(name, given, edged):
            return True, None
        if len(given) != len(self._columns) or not NAME.match(name) or name.split()[0].lower() in RANKS:
            self._columns = []
            return False, None
        name = name.replace(" ", "_")
        values = self._of_model(name, given) if self._of_models else self._of_parts(name, given)
        return True, (None, values) if values else None

    def _of_row(self, part: str, given: list[str]) -> dict[str, float]:
        return {
            f"{part}_{column}": _value(cell)
            for column, cell in zip(self._of_rows, given)  # noqa: B905 - Python 3.9
            if CELL.match(cell) and (measured(column) or is_exact(cell))
        }

    def _header(self, name: str, given: list[str], edged: bool) -> bool:
        named = edged and bool(name) and all(map(_is_column, given)) and any(map(measured, given))
        self._of_rows = [column.replace(" ", "_") for column in given] if named else []
        parts = edged and _PARTS.issuperset(map(str.lower, given))
        models = not name and all(map(_is_column, given)) and sum(map(measured, given)) > 1
        if parts or models:
            self._columns, self._measured, self._of_models = given, False, not parts
        return parts or models

    def _of_parts(self, name: str, given: list[str]) -> dict[str, float]:
        sure = measured(name)
        self._measured = self._measured or sure
        return {
            f"{part.lower()}_{name}": _value(cell)
            for part, cell in zip(self._columns, given)  # noqa: B905 - Python 3.9
            if CELL.match(cell) and (sure or (self._measured and is_exact(cell)))
        }

    def _of_model(self, name: str, given: list[str]) -> dict[str, float]:
        return {
            under(self._part, f"{name}_{column.replace(' ', '_')}"): _value(cell)
            for column, cell in zip(self._columns, given)  # noqa: B905 - Python 3.9
            if CELL.match(cell) and measured(column)
        }


def _is_column(cell: str) -> bool:
    """Whether it names a column: `RMSE`, and not `test loss  5.20`."""
    return NAME.match(cell) is not None and not any(map(CELL.match, cell.split()))


def _value(cell: str) -> float:
    return float(cell.rstrip("%").replace(",", ""))
