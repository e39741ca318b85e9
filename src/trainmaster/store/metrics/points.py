"""Metric points and heartbeats: written by the api in groups, fenced by attempt; not events.

A point costs about 30 bytes: its series (job, name, rank) is a small number. Rows of a series are stored together in order of
their steps, so that reading a curve is a sequential read. Points without a step have their own table, numbered in order of
arrival.
"""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Select, delete, func, insert, select

from trainmaster.errors import DamagedError
from trainmaster.model.ids import AgentKey
from trainmaster.ports.metric_store import HeartbeatRow, LostWork, MetricPoint
from trainmaster.store import schema
from trainmaster.store.database import Database, upsert
from trainmaster.store.identity import set_aside
from trainmaster.store.metrics.arrivals import Arrivals, Placed, forget
from trainmaster.store.metrics.curves import (
    Divergence,
    has_steps,
    read_best_of_both,
    read_curve,
    read_divergence,
    read_last,
    read_points,
    read_uncovered,
)
from trainmaster.store.metrics.thinning import Thinner, read_last_seq

_PER_QUERY = 500
_STEP_MAX = 2**63 - 1
_SERIES_CACHED = 100_000
_RANKS = 8  # of one metric

_series, _point, _unstepped = schema.series, schema.point, schema.unstepped
_latest, _fence, _heartbeat = schema.latest, schema.fence, schema.heartbeat

_SET_FENCE = upsert(_fence, ["job"])
_UPSERT_POINT = upsert(_point, ["series", "step"], where=lambda new: new.attempt >= _point.c.attempt, kept=["seq"])
_UPSERT_HEARTBEAT = upsert(_heartbeat, ["key"], where=lambda new: new.at_s >= _heartbeat.c.at_s)
# The same rank as in `_lowest_rank`. What arrived later is the latest, whatever its date, unless an earlier attempt left it.
_UPSERT_LATEST = upsert(
    _latest,
    ["job", "name"],
    where=lambda new: (new.rank < _latest.c.rank) | ((new.rank == _latest.c.rank) & (new.attempt >= _latest.c.attempt)),
)

SeriesKey = tuple[str, str, int]  # job, name, rank
M = TypeVar("M", bound=Callable[..., Any])


def _surviving(method: M) -> M:
    """If the file is damaged, set it aside and retry the writer's method on a new file: jobs must not wait for it."""

    @wraps(method)
    def call(self: "SqlMetricStore", *args: Any, **kwargs: Any) -> Any:
        database = self._database
        try:
            return method(self, *args, **kwargs)
        except DamagedError as error:
            if database.read_only:
                raise
            self._renew(database, error)
            return method(self, *args, **kwargs)

    return cast(M, call)


class SqlMetricStore(Thinner):
    """`trainmaster.ports.metric_store.MetricStore`. A damaged file is set aside and reported, and an empty one is created.

    Raises: OperationError if the file cannot be used.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._database = Database("metrics", path, read_only)
        self._ids: dict[SeriesKey, int] = {}
        self._renewing = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def version(self) -> str:
        """See `Database.version`."""
        return self._database.version()

    def _renew(self, damaged: Database, error: DamagedError) -> None:
        with self._renewing:
            if self._database is damaged:  # no other thread has replaced it
                damaged.close()
                set_aside(damaged.path, "metrics", error)
                self._ids = {}
                self._database = Database("metrics", damaged.path)

    @_surviving
    def write(self, points: Sequence[MetricPoint], heartbeats: Sequence[HeartbeatRow], fenced: bool = True) -> int:
        """See the port. A point that a group contains twice is stored once.

        A heartbeat below the fence is dropped and not counted. A step beyond 64 bits is refused.
        """
        if not points and not heartbeats:
            return 0
        beats = [(AgentKey.parse(beat.key), beat) for beat in heartbeats]
        with self._database.writing() as connection:
            jobs = {point.job for point in points} | {key.job for key, _ in beats}
            before = _read_fences(connection, jobs)
            fences = dict(before)
            arrivals, placed, refused = Arrivals(connection, points, beats), list[Placed](), 0
            for key, beat in beats:
                arrivals.hear(key, beat)
            for point in points:
                fence = fences.get(point.job, 0)
                if _fits(point.step) and (point.attempt >= fence or not fenced):
                    fences[point.job] = max(point.attempt, fence)
                    new = arrivals.place(point)
                    if new is not None:
                        placed.append(new)
                else:
                    refused += 1
            live_beats = []
            for key, beat in beats:
                if key.attempt >= fences.get(key.job, 0):
                    fences[key.job] = key.attempt
                    live_beats.append((key, beat))
            _raise_fences(connection, {job: number for job, number in fences.items() if number != before.get(job)})
            ids = self._series_ids(connection, {(point.job, point.name, point.rank) for point, _ in placed})
            _write_points(connection, placed, ids)
            arrivals.write(connection)
            _write_heartbeats(connection, live_beats)
        self._remember(ids)
        return refused

    @_surviving
    def raise_fence(self, job: str, attempt: int) -> None:
        """See the port. The fence is never lowered."""
        with self._database.writing() as connection:
            if _read_fences(connection, {job}).get(job, 0) < attempt:
                _raise_fences(connection, {job: attempt})
                forget(connection, job, attempt)

    @_surviving
    def series(self, job: str, name: str, limit: int = 2000, lost: LostWork = ()) -> list[tuple[int, float]]:
        """See the port. A curve without steps is numbered 0, 1, … in order of arrival.

        Thinned evenly by step, keeping the first and the last point. If that would leave less than half of `limit`, or if work
        is lost, thinned evenly by point. The first case is linear in `limit`.
        """
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            if series is None:
                return []
            return read_curve(connection, _point, series, limit, lost) or read_curve(connection, _unstepped, series, limit)

    @_surviving
    def elsewhere(self, job: str, lost_of: Callable[[str], LostWork] = lambda _: ()) -> list[str]:
        """See the port. Of the ranks of a metric, at most `_RANKS` are looked at."""
        of_job = select(_series.c.name, _series.c.id).where(_series.c.job == job).order_by(_series.c.name, _series.c.rank)
        with self._database.reading() as connection:
            rows = connection.execute(of_job).all()
            ids = {name: [id for _, id in islice(group, _RANKS)] for name, group in groupby(rows, key=itemgetter(0))}
            return [name for name, (shown, *others) in ids.items() if read_uncovered(connection, shown, others, lost_of(name))]

    @_surviving
    def points(self, job: str, name: str, after: int | None, limit: int) -> list[tuple[int, float, float, int]]:
        """See the port. Linear in `limit`."""
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            if series is None:
                return []
            return read_points(connection, _point if has_steps(connection, series) else _unstepped, series, after, limit)

    @_surviving
    def stepless(self, job: str, name: str, after: int | None, limit: int) -> list[tuple[int, float, float, int]]:
        """See the port. Linear in `limit`."""
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            if series is None or not has_steps(connection, series):
                return []
            return read_points(connection, _unstepped, series, after, limit)

    @_surviving
    def recent(self, job: str, name: str, rank: int, limit: int) -> list[tuple[float, float]]:
        """(time_s, value) of the newest points of a metric without steps, of one rank. NaN is left out. Linear in `limit`."""
        of_rank = select(_series.c.id).where(_series.c.job == job, _series.c.name == name, _series.c.rank == rank)
        with self._database.reading() as connection:
            series = connection.scalar(of_rank)
            if series is None:
                return []
            query = select(_unstepped.c.time_s, _unstepped.c.value).where(_unstepped.c.series == series)
            rows = connection.execute(query.order_by(_unstepped.c.n.desc()).limit(limit)).all()
        return [(time_s, value) for time_s, value in rows if value is not None]

    @_surviving
    def averages(self, job: str, prefix: str) -> dict[str, tuple[float, float]]:
        """(mean, highest value) of the metrics without steps whose names have this prefix, of the lowest rank that has them.

        NaN is left out. Linear in the points of these series.
        """
        of_job = select(_series.c.name, _series.c.id).where(_series.c.job == job).order_by(_series.c.rank.desc())
        summed = select(func.avg(_unstepped.c.value), func.max(_unstepped.c.value))
        with self._database.reading() as connection:
            ids = {name: id for name, id in connection.execute(of_job).all() if name.startswith(prefix)}
            rows = {name: connection.execute(summed.where(_unstepped.c.series == id)).one() for name, id in ids.items()}
        return {name: (mean, highest) for name, (mean, highest) in rows.items() if mean is not None}

    @_surviving
    def best(self, job: str, name: str, largest: bool = False, lost: LostWork = ()) -> tuple[int | None, float, float] | None:
        """See the port. Linear in the points of the series."""
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            if series is None:
                return None
            return read_best_of_both(connection, series, largest, lost)

    @_surviving
    def divergence(self, job: str, name: str, step: int | None, near: int) -> Divergence:
        """See the port."""
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            table = _unstepped if step is None else _point
            return (None, None) if series is None else read_divergence(connection, table, series, step, near)

    @_surviving
    def last(
        self, jobs: Sequence[str], lost_of: Callable[[str, str], LostWork] = lambda _job, _name: ()
    ) -> dict[str, dict[str, tuple[int | None, float, float]]]:
        """See the port. Jobs without points are left out."""
        found: dict[str, dict[str, tuple[int | None, float, float]]] = {}
        older: list[tuple[str, str, int, int]] = []
        columns = (_latest.c.job, _latest.c.name, _latest.c.attempt, _latest.c.step, _latest.c.value, _latest.c.time_s)
        with self._database.reading() as connection:
            for part in _parts(jobs):
                query = select(*columns).where(_latest.c.job.in_(part)).order_by(_latest.c.job, _latest.c.name)
                rows = connection.execute(query).all()  # faster than row by row
                newest: dict[str, int] = {}
                for job, name, attempt, step, value, time_s in rows:
                    newest[job] = max(attempt, newest.get(job, attempt))
                    found.setdefault(job, {})[name] = (step, math.nan if value is None else value, time_s)
                older += [(job, name, of, step) for job, name, of, step, *_ in rows if of < newest[job] and step is not None]
        for job, name, attempt, step in older:
            lost = lost_of(job, name)
            if any(attempt < later and step >= begin for later, begin in lost):
                kept = self._last_kept(job, name, lost)
                found[job] = {**found[job], name: kept} if kept else {n: at for n, at in found[job].items() if n != name}
        return found

    def _last_kept(self, job: str, name: str, lost: LostWork) -> tuple[int, float, float] | None:
        with self._database.reading() as connection:
            series = connection.scalar(_lowest_rank(job, name))
            return None if series is None else read_last(connection, _point, series, lost)

    @_surviving
    def heartbeats(self, *jobs: str) -> list[HeartbeatRow]:
        """See the port. Sorted by job and node index; the fence determines the current attempt."""
        columns = (_heartbeat.c.key, _heartbeat.c.time_s, _heartbeat.c.step, _heartbeat.c.memory_bytes, _heartbeat.c.cpu_s)
        current = (_fence.c.job == _heartbeat.c.job) & (_fence.c.attempt == _heartbeat.c.attempt)
        query = select(*columns, _heartbeat.c.at_s).join(_fence, current)
        rows: list[HeartbeatRow] = []
        with self._database.reading() as connection:
            for part in _parts(jobs):
                rows += [HeartbeatRow(*row) for row in connection.execute(query.where(_heartbeat.c.job.in_(part)))]
        keys = {row.key: AgentKey.parse(row.key) for row in rows}
        return sorted(rows, key=lambda row: (keys[row.key].job, keys[row.key].node_index))

    def _series_ids(self, connection: Connection, keys: set[SeriesKey]) -> dict[SeriesKey, int]:
        ids = {key: self._ids[key] for key in keys if key in self._ids}
        if len(ids) < len(keys):
            ids |= _read_series(connection, keys - ids.keys())
        missing = sorted(keys - ids.keys())
        if missing:
            connection.execute(insert(_series), [{"job": job, "name": name, "rank": rank} for job, name, rank in missing])
            ids |= _read_series(connection, set(missing))
        return ids

    def _remember(self, ids: dict[SeriesKey, int]) -> None:
        # Only after the commit: a series created in a transaction that was rolled back has no id.
        if len(self._ids) > _SERIES_CACHED:
            self._ids = {}
        self._ids.update(ids)


def _lowest_rank(job: str, name: str) -> Select[int]:
    """The series of a metric that represents its job: rank 0, or the lowest rank that has it."""
    return select(_series.c.id).where(_series.c.job == job, _series.c.name == name).order_by(_series.c.rank).limit(1)


def _fits(step: int | None) -> bool:
    return step is None or -_STEP_MAX <= step <= _STEP_MAX


def _parts(names: Iterable[str]) -> list[list[str]]:
    ordered = list(names)
    return [ordered[start : start + _PER_QUERY] for start in range(0, len(ordered), _PER_QUERY)]


def _read_fences(connection: Connection, jobs: set[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in _parts(jobs):
        for job, attempt in connection.execute(select(_fence.c.job, _fence.c.attempt).where(_fence.c.job.in_(part))):
            found[job] = attempt
    return found


def _raise_fences(connection: Connection, raised: dict[str, int]) -> None:
    if raised:
        connection.execute(_SET_FENCE, [{"job": job, "attempt": attempt} for job, attempt in raised.items()])
    for job, attempt in raised.items():
        connection.execute(delete(_heartbeat).where(_heartbeat.c.job == job, _heartbeat.c.attempt < attempt))


def _read_series(connection: Connection, keys: set[SeriesKey]) -> dict[SeriesKey, int]:
    found: dict[SeriesKey, int] = {}
    columns = (_series.c.job, _series.c.name, _series.c.rank, _series.c.id)
    for part in _parts({job for job, _, _ in keys}):
        for job, name, rank, number in connection.execute(select(*columns).where(_series.c.job.in_(part))):
            if (job, name, rank) in keys:
                found[job, name, rank] = number
    return found


def _write_points(connection: Connection, placed: list[Placed], ids: dict[SeriesKey, int]) -> None:
    stepped: list[dict[str, object]] = []
    unstepped: list[dict[str, object]] = []
    latest: dict[tuple[str, str], Placed] = {}
    for seq, (point, time_s) in enumerate(placed, read_last_seq(connection) + 1):
        value = float(point.value)
        row: dict[str, object] = {
            "series": ids[point.job, point.name, point.rank],
            "attempt": point.attempt,
            "value": None if value != value else value,
            "time_s": time_s,
            "seq": seq,
        }
        if point.step is None:
            unstepped.append(row)
        else:
            row["step"] = point.step
            stepped.append(row)
        newest = latest.get((point.job, point.name))
        if newest is None or point.rank <= newest.point.rank:
            latest[point.job, point.name] = Placed(point, time_s)
    if stepped:
        connection.execute(_UPSERT_POINT, stepped)
    if unstepped:
        _append_unstepped(connection, unstepped)
    if latest:
        connection.execute(_UPSERT_LATEST, [_latest_row(*newest) for newest in latest.values()])


def _latest_row(point: MetricPoint, time_s: float) -> dict[str, object]:
    return {
        "job": point.job,
        "name": point.name,
        "rank": point.rank,
        "attempt": point.attempt,
        "step": point.step,
        "value": None if math.isnan(point.value) else float(point.value),
        "time_s": time_s,
    }


def _append_unstepped(connection: Connection, rows: list[dict[str, object]]) -> None:
    next_n: dict[object, int] = {}
    for row in rows:
        series = row["series"]
        if series not in next_n:
            highest = connection.scalar(select(func.max(_unstepped.c.n)).where(_unstepped.c.series == series))
            next_n[series] = 0 if highest is None else highest + 1
        row["n"] = next_n[series]
        next_n[series] += 1
    connection.execute(insert(_unstepped), rows)


def _write_heartbeats(connection: Connection, beats: list[tuple[AgentKey, HeartbeatRow]]) -> None:
    rows = [
        {
            "key": beat.key,
            "job": key.job,
            "attempt": key.attempt,
            "time_s": beat.time_s,
            "step": beat.step if _fits(beat.step) else None,
            "memory_bytes": beat.memory_bytes,
            "cpu_s": beat.cpu_s,
            "at_s": beat.at_s,
        }
        for key, beat in beats
    ]
    if rows:
        connection.execute(_UPSERT_HEARTBEAT, rows)
