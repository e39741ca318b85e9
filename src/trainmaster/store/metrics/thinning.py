"""Thins the curves of ended jobs, in transactions of milliseconds, so that agents' points are written in between."""

from collections.abc import Callable
from itertools import product

from sqlalchemy import Connection, Table, delete, func, select

from trainmaster.ports.metric_store import LostWork
from trainmaster.store import schema
from trainmaster.store.database import Database, upsert
from trainmaster.store.identity import begin_above
from trainmaster.store.metrics.curves import read_best, read_curve, read_divergence, read_last

_STEP = 2000  # points examined per transaction
_PAGES = 500  # returned to the disk per transaction
_REPLACED = 10**15  # above it, a mark is a time in microseconds
_EVERY = 2**63 - 1  # points
_SET_MARK = upsert(schema.unstepped, ["series", "n"])
_series, _point, _unstepped, _latest = schema.series, schema.point, schema.unstepped, schema.latest


def read_last_seq(connection: Connection) -> int:
    """The number of the latest point, even if it was removed or is in the file before this one; 0 before the first."""
    newest = [connection.scalar(select(func.max(table.c.seq))) for table in (_point, _unstepped)]
    return max(seq or 0 for seq in newest)


class Thinner:
    """Thinning and shrinking: part of `trainmaster.ports.metric_store.MetricStore`."""

    _database: Database

    def jobs(self, after: str, limit: int) -> list[str]:
        """See the port."""
        query = select(_series.c.job).where(_series.c.job > after).distinct().order_by(_series.c.job).limit(limit)
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def thin(self, job: str, keep: int, lost_of: Callable[[str], LostWork] = lambda _: ()) -> int:
        """See the port. Linear in the points of curves with more than twice `keep` points."""
        with self._database.reading() as connection:
            series = connection.execute(select(_series.c.id, _series.c.name).where(_series.c.job == job)).all()
        stepped = sum(self._thin(_point, number, keep, lost_of(name)) for number, name in series)
        return stepped + sum(self._thin(_unstepped, number, keep, ()) for number, _ in series)

    def replaced_s(self) -> float | None:
        """When this file took the place of a damaged or lost one; None if it never did. The mark says it: see `identity`."""
        marked = (_unstepped.c.series == schema.MARK) & (_unstepped.c.n == 0)
        with self._database.reading() as connection:
            seq = connection.scalar(select(_unstepped.c.seq).where(marked)) or 0
        return seq / 1e6 if seq >= _REPLACED else None

    def thinned(self, job: str) -> int:
        """How many points `thin` has removed of curves of which it kept some."""
        removed = select(func.sum(_unstepped.c.value)).join(_series, _series.c.id == _unstepped.c.n)
        with self._database.reading() as connection:
            return int(connection.scalar(removed.where(_unstepped.c.series == schema.MARK, _series.c.job == job)) or 0)

    def shrink(self) -> bool:
        """See the port. Takes some milliseconds."""
        return self._database.shrink(_PAGES)

    def _thin(self, table: Table, series: int, keep: int, lost: LostWork) -> int:
        position = table.primary_key.columns.values()[1]
        of_series = table.c.series == series
        with self._database.reading() as connection:
            if connection.scalar(select(position).where(of_series).order_by(position).limit(1).offset(2 * keep)) is None:
                return 0
            kept = _kept(connection, table, series, keep, lost) if keep else set[int]()
        removed, after = 0, None
        while True:
            with self._database.writing() as connection:
                newest = read_last_seq(connection)
                behind = [of_series] if after is None else [of_series, position > after]
                rows = list(connection.scalars(select(position).where(*behind).order_by(position).limit(_STEP)))
                doomed = [at for at in rows if at not in kept]
                for start in range(0, len(doomed), 500):
                    connection.execute(delete(table).where(of_series, position.in_(doomed[start : start + 500])))
                if doomed and kept:
                    _count(connection, series, len(doomed))
                if read_last_seq(connection) < newest:
                    begin_above(connection, newest)
            removed += len(doomed)
            if len(rows) < _STEP:
                return removed
            after = rows[-1]


def _count(connection: Connection, series: int, removed: int) -> None:
    """Add to the number of points that were removed of a series."""
    of_series = (_unstepped.c.series == schema.MARK) & (_unstepped.c.n == series)
    before = connection.scalar(select(_unstepped.c.value).where(of_series)) or 0.0
    mark = {"series": schema.MARK, "n": series, "attempt": 0, "value": before + removed, "time_s": 0.0, "seq": 0}
    connection.execute(_SET_MARK, mark)


def _kept(connection: Connection, table: Table, series: int, keep: int, lost: LostWork) -> set[int]:
    """The positions that stay: about `keep` that are spread evenly, and those that something is told by."""
    kept = {at for at, _ in read_curve(connection, table, series, keep)}
    for largest, without in product((False, True), {lost, ()}):
        best = read_best(connection, table, series, largest, without)
        kept.update(() if best is None else (best[0],))
    ends: set[int | None] = {None}
    if table is _point:  # the last value that is told need not be the one of the highest step
        last = read_last(connection, table, series, lost)
        of_series = (_latest.c.job == _series.c.job) & (_latest.c.name == _series.c.name)
        told = connection.scalar(select(_latest.c.step).join(_series, of_series).where(_series.c.id == series))
        ends |= {at for at in (told, None if last is None else last[0]) if at is not None}
    kept.update(at for at in ends if at is not None)
    for end in ends:  # since when it is not finite, and its last finite point
        since, finite = read_divergence(connection, table, series, end, _EVERY)
        kept.update(at for at in (since, None if finite is None else finite[0]) if at is not None)
    return kept
