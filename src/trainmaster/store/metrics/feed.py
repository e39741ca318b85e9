"""Reads the metric store in order of arrival, for mirrors: each step of a rank's metric exactly once.

A point that replaces another keeps its number, so it is read once, with its value at that time. Points without a step count
from 0, and end where the series has its first point with a step. A step that was already counted that way is marked (`again`).
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select, tuple_, union_all

from trainmaster.ports.tracker import FeedPage, FeedPoint
from trainmaster.store import schema
from trainmaster.store.database import Database
from trainmaster.store.metrics.thinning import read_last_seq

_PER_QUERY = 500
_CACHED_MAX = 100_000
_series, _point, _unstepped = schema.series, schema.point, schema.unstepped


class _Row(NamedTuple):
    series: int
    position: int
    stepped: bool
    seq: int
    value: float | None
    time_s: float


class SqlFeed:
    """`trainmaster.ports.tracker.Feed`. Raises: OperationError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._database = Database("metrics", path, read_only=True)
        self._names: dict[int, tuple[str, str, int]] = {}
        self._first_stepped: dict[int, int] = {}  # number of a series' first point with a step, which never changes

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def last_seq(self) -> int:
        """See the port."""
        with self._database.reading() as connection:
            return read_last_seq(connection)

    def since(self, seq: int, limit: int) -> FeedPage:
        """See the port. Linear in `limit`."""
        with self._database.reading() as connection:
            rows = []
            for table in (_point, _unstepped):
                newer = (table.c.seq > seq) & (table.c.series != schema.MARK)
                query = _columns(table).where(newer).order_by(table.c.seq).limit(limit)
                rows += [_Row(*row) for row in connection.execute(query)]
            rows = sorted(rows, key=lambda row: row.seq)[:limit]
            return FeedPage(self._points(connection, rows), (rows[-1].seq,) if rows else None)

    def of_job(self, job: str, upto_seq: int, after: tuple[int, ...] | None, limit: int) -> FeedPage:
        """See the port. Ordered by series, kind and step. Linear in `limit` and in points newer than `upto_seq`."""
        with self._database.reading() as connection:
            ids = connection.scalars(select(_series.c.id).where(_series.c.job == job).order_by(_series.c.id)).all()
            if not ids:
                return FeedPage((), None)
            parts = []
            for table in (_unstepped, _point):
                query = _columns(table).where(table.c.series.in_(ids), table.c.seq <= upto_seq)
                if after is not None:
                    query = query.where(_beyond(table, after))
                parts.append(query.order_by(table.c.series, table.primary_key.columns.values()[1]).limit(limit).subquery())
            both = union_all(*(select(part) for part in parts)).subquery()
            ordered = select(both).order_by(both.c.series, both.c.stepped, both.c.position).limit(limit)
            rows = [_Row(*row) for row in connection.execute(ordered)]
            last = rows[-1] if len(rows) == limit else None
            end = None if last is None else (last.series, int(last.stepped), last.position)
            return FeedPage(self._points(connection, rows), end)

    def _points(self, connection: Connection, rows: Sequence[_Row]) -> tuple[FeedPoint, ...]:
        series = {row.series for row in rows}
        self._learn_names(connection, series)
        mixed = {number for part in _parts(series) for number in connection.scalars(_with_unstepped(part))}
        self._learn_first_stepped(connection, mixed)
        taken = self._taken(connection, [row for row in rows if row.stepped and row.series in mixed])
        found = []
        for row in rows:
            first = self._first_stepped.get(row.series)
            is_late = not row.stepped and first is not None and first <= row.seq
            if is_late:
                continue
            again = row.stepped and (row.series, row.position) in taken
            job, name, rank = self._names[row.series]
            value = math.nan if row.value is None else row.value
            found.append(FeedPoint(row.seq, job, name, rank, row.position, value, row.time_s, again))
        return tuple(found)

    def _learn_names(self, connection: Connection, series: set[int]) -> None:
        if len(self._names) > _CACHED_MAX:
            self._names.clear()
        for part in _parts(series - self._names.keys()):
            query = select(_series.c.id, _series.c.job, _series.c.name, _series.c.rank).where(_series.c.id.in_(part))
            self._names.update({id: (job, name, rank) for id, job, name, rank in connection.execute(query)})

    def _learn_first_stepped(self, connection: Connection, mixed: set[int]) -> None:
        """Read the first stepped point of each series that also has points without a step, once."""
        for number in mixed - self._first_stepped.keys():
            first = connection.scalar(select(func.min(_point.c.seq)).where(_point.c.series == number))
            if first is not None:
                self._first_stepped[number] = first

    def _taken(self, connection: Connection, rows: Sequence[_Row]) -> set[tuple[int, int]]:
        """Steps that a point without a step took before its series had points with steps."""
        found = set()
        for row in rows:
            query = select(_unstepped.c.seq).where(_unstepped.c.series == row.series, _unstepped.c.n == row.position)
            seq = connection.scalar(query)
            if seq is not None and seq < self._first_stepped[row.series]:
                found.add((row.series, row.position))
        return found


def _columns(table: Any) -> Select[Any]:
    series, position = table.primary_key.columns.values()
    stepped = literal(table is _point).label("stepped")
    return select(series, position.label("position"), stepped, table.c.seq, table.c.value, table.c.time_s)


def _beyond(table: Any, after: tuple[int, ...]) -> ColumnElement[bool]:
    """The condition for rows after (series, kind, position) in one of the tables, written so that its primary key is used."""
    series, kind, position = after
    if kind == int(table is _point):
        return tuple_(*table.primary_key.columns) > tuple_(literal(series), literal(position))
    return table.c.series >= series if table is _point else table.c.series > series


def _with_unstepped(series: Sequence[int]) -> Select[Any]:
    return select(_unstepped.c.series).where(_unstepped.c.series.in_(series)).distinct()


def _parts(numbers: Iterable[int]) -> list[list[int]]:
    ordered = sorted(numbers)
    return [ordered[start : start + _PER_QUERY] for start in range(0, len(ordered), _PER_QUERY)]
