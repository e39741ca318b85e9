"""Reads a thinned curve from many points without reading all of them."""

import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Table, bindparam, case, func, literal, select

from trainmaster.ports.metric_store import LostWork
from trainmaster.recovery.lost_work import of_metric
from trainmaster.store import schema

Curve = list[tuple[int, float]]
Divergence = tuple[int | None, tuple[int, float] | None]  # since which position, and the finite point before; None: too far

_point, _unstepped = schema.point, schema.unstepped

_LAST = 2**63 - 1
_LOST_MAX = 200  # attempts whose begins are looked at, the newest ones


def read_curve(connection: Connection, points: Table, series: int, limit: int, lost: LostWork = ()) -> Curve:
    """Up to `limit` points of a series by position (the table's second key), with the first and the last.

    Linear in `limit`; in the points of the series if work is lost, or if their positions are uneven.
    """
    position = points.primary_key.columns.values()[1]
    mine = _mine(connection, points, series, lost)
    if limit < 1:
        return []
    everything = select(position, points.c.value).where(*mine)
    if connection.scalar(select(position).where(*mine).order_by(position).limit(1).offset(limit)) is None:
        return _curve(connection.execute(everything.order_by(position)).all())
    if limit == 1:
        return _curve(connection.execute(everything.order_by(position.desc()).limit(1)).all())
    thinned = [] if lost else _thin_by_position(connection, points, series, limit)
    if len(thinned) < limit // 2:  # the positions themselves are uneven
        thinned = _thin_by_count(connection, points, mine, limit)
    return thinned


def read_best(
    connection: Connection, points: Table, series: int, largest: bool, lost: LostWork = ()
) -> tuple[int, float, float] | None:
    """(position, value, time_s) of the smallest or largest value, the first of equals. Reads the whole series.

    NaN and infinity are never best; None if there is no other value.
    """
    return _read_best(connection, points, _mine(connection, points, series, lost), largest)


def read_best_of_both(
    connection: Connection, series: int, largest: bool, lost: LostWork = ()
) -> tuple[int | None, float, float] | None:
    """Likewise, of the points with a step and of those before the first step, whose step is None. A curve may lack either."""
    if not has_steps(connection, series):
        return read_best(connection, _unstepped, series, largest)
    best = read_best(connection, _point, series, largest, lost)
    mine = [_unstepped.c.series == series]
    if lost:
        mine.append(_unstepped.c.attempt.not_in(_begun_again(connection, series, lost)))
    before = _read_best(connection, _unstepped, mine, largest)
    if before is None or (best is not None and (best[1] >= before[1] if largest else best[1] <= before[1])):
        return best
    return None, before[1], before[2]


def has_steps(connection: Connection, series: int) -> bool:
    """Whether a point of the series has a step."""
    return connection.scalar(select(_point.c.step).where(_point.c.series == series).limit(1)) is not None


def _begun_again(connection: Connection, series: int, lost: LostWork) -> list[int]:
    """The attempts with points before their first step of which a later one began at that step or before."""
    attempts = list(connection.scalars(select(_unstepped.c.attempt).where(_unstepped.c.series == series).distinct()))
    if not attempts:
        return []
    firsts = _first_steps(connection, series)
    own = of_metric(lost, firsts)
    return [one for one in attempts if any(one < later and begin <= firsts.get(one, _LAST) for later, begin in own)]


def _first_steps(connection: Connection, series: int) -> dict[int, int]:
    """By attempt; none of an attempt of which all steps were repeated."""
    of_attempt = select(_point.c.attempt, func.min(_point.c.step)).where(_point.c.series == series).group_by(_point.c.attempt)
    return dict(connection.execute(of_attempt).all())


def _read_best(
    connection: Connection, points: Table, mine: Sequence[ColumnElement[bool]], largest: bool
) -> tuple[int, float, float] | None:
    position = points.primary_key.columns.values()[1]
    valued = (*mine, _is_finite(points.c.value))
    by_value = points.c.value.desc() if largest else points.c.value
    query = select(position, points.c.value, points.c.time_s).where(*valued).order_by(by_value, position).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def read_points(
    connection: Connection, points: Table, series: int, after: int | None, limit: int
) -> list[tuple[int, float, float, int]]:
    """(position, value, time_s, attempt) of all points after position `after`, in their order."""
    position = points.primary_key.columns.values()[1]
    query = select(position, points.c.value, points.c.time_s, points.c.attempt).where(points.c.series == series)
    behind = query if after is None else query.where(position > after)
    rows = connection.execute(behind.order_by(position).limit(limit)).all()
    return [(at, math.nan if value is None else value, time_s, attempt) for at, value, time_s, attempt in rows]


def read_last(connection: Connection, points: Table, series: int, lost: LostWork) -> tuple[int, float, float] | None:
    """(position, value, time_s) of the highest position. None if all points are lost."""
    position = points.primary_key.columns.values()[1]
    query = select(position, points.c.value, points.c.time_s).where(*_mine(connection, points, series, lost))
    row = connection.execute(query.order_by(position.desc()).limit(1)).one_or_none()
    return None if row is None else (row[0], math.nan if row[1] is None else row[1], row[2])


def read_uncovered(connection: Connection, series: int, others: Sequence[int], lost: LostWork) -> bool:
    """Whether one of the other series ends in an attempt that this one has no point of there."""
    step, attempt = _point.c.step, _point.c.attempt
    for other in others:
        there = select(step, attempt).where(*_mine(connection, _point, other, lost)).order_by(step.desc()).limit(1)
        end = connection.execute(there).first()
        if end is None:
            continue
        here = select(attempt).where(*_mine(connection, _point, series, lost), step <= end[0]).order_by(step.desc()).limit(1)
        if (connection.scalar(here) or 0) < end[1]:
            return True
    return False


def read_divergence(connection: Connection, points: Table, series: int, at: int | None, near: int) -> Divergence:
    """The non-finite values that end at `at`, or at the end of the series, by position. Reads its last `near` points."""
    given = {"series": series, "at": _LAST if at is None else at, "near": near}
    count, since, position, value = connection.execute(_divergence(points), given).one()
    if position is not None:
        return since, (position, value)
    return (since if count < near else None), None


@cache
def _divergence(points: Table) -> Select[Any]:
    """Built once, as below: a list of jobs asks for each that has diverged."""
    position = points.primary_key.columns.values()[1]
    mine = (points.c.series == bindparam("series", type_=BigInteger), position <= bindparam("at", type_=BigInteger))
    tail = select(position.label("at"), points.c.value).where(*mine).order_by(position.desc())
    near = tail.limit(bindparam("near", type_=BigInteger)).cte("near")
    last = select(near.c.at, near.c.value).where(_is_finite(near.c.value)).order_by(near.c.at.desc()).limit(1).cte("last")
    after = func.coalesce(select(last.c.at).scalar_subquery(), -_LAST)
    since = select(func.min(near.c.at)).where(near.c.at > after).scalar_subquery()
    count = select(func.count()).select_from(near).scalar_subquery()
    return select(count, since, select(last.c.at).scalar_subquery(), select(last.c.value).scalar_subquery())


def _is_finite(value: ColumnElement[Any]) -> ColumnElement[bool]:
    """Of a stored value; NaN is stored as NULL."""
    return value.between(-sys.float_info.max, sys.float_info.max)


def _thin_by_position(connection: Connection, points: Table, series: int, limit: int) -> Curve:
    """The point at or after each of `limit` evenly spaced positions: one index lookup each."""
    position = points.primary_key.columns.values()[1]
    of_series = points.c.series == series
    low = connection.scalar(select(func.min(position)).where(of_series)) or 0
    high = connection.scalar(select(func.max(position)).where(of_series)) or 0
    width, rest = divmod(high - low, limit - 1)  # kept apart, so that no product overflows 64 bits
    given = {"series": series, "low": low, "width": width, "rest": rest, "spans": limit - 1}
    return _curve(connection.execute(_nearest_to_marks(points), given).all())


@cache
def _nearest_to_marks(points: Table) -> Select[Any]:
    """Built once: a comparison reads twenty curves, and building the query costs more than running it."""
    position = points.primary_key.columns.values()[1]
    names = ("series", "low", "width", "rest", "spans")
    series, low, width, rest, spans = (bindparam(name, type_=BigInteger) for name in names)
    mark = select(literal(0).label("i")).cte("mark", recursive=True)
    mark = mark.union_all(select(mark.c.i + 1).where(mark.c.i < spans))
    target = low + mark.c.i * width + mark.c.i * rest // spans
    inner = points.alias()
    at = inner.c[position.name]
    nearest = select(func.min(at)).where(inner.c.series == series, at >= target).correlate(mark).scalar_subquery()
    wanted = (points.c.series == series, position.in_(select(nearest).select_from(mark)))
    return select(position, points.c.value).where(*wanted).order_by(position)


def _mine(connection: Connection, points: Table, series: int, lost: LostWork) -> list[ColumnElement[bool]]:
    """The points of a series, without those of lost work as it counts.

    Attempts and their begins both ascend, so that of the attempts after a point's own, the next one has the lowest begin.
    """
    of_series, attempt = points.c.series == series, points.c.attempt
    if not lost:
        return [of_series]
    newest = of_metric(lost[-_LOST_MAX:], _first_steps(connection, series))
    begin = case(*((attempt < number, begin) for number, begin in newest), else_=_LAST)
    return [of_series, (attempt >= newest[-1][0]) | (points.primary_key.columns.values()[1] < begin)]


def _thin_by_count(connection: Connection, points: Table, mine: Sequence[ColumnElement[bool]], limit: int) -> Curve:
    """Every k-th point and the last one. Reads the whole series."""
    position = points.primary_key.columns.values()[1]
    count = connection.scalar(select(func.count()).select_from(points).where(*mine)) or 0
    every = math.ceil(count / (limit - 1))
    number = (func.row_number().over(order_by=position) - 1).label("number")
    numbered = select(position.label("position"), points.c.value, number).where(*mine).subquery()
    wanted = (numbered.c.number % every == 0) | (numbered.c.number == count - 1)
    query = select(numbered.c.position, numbered.c.value).where(wanted).order_by(numbered.c.position)
    return _curve(connection.execute(query).all())


def _curve(rows: object) -> Curve:
    return [(position, math.nan if value is None else value) for position, value in rows]  # type: ignore[attr-defined]
