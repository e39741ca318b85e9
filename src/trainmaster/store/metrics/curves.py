"""Reads a thinned curve from many points without reading all of them."""

import math
import sys
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, Table, bindparam, func, literal, select

Curve = list[tuple[int, float]]

_NEAR = 10_000  # points in which a finite value before non-finite ones is searched: a few milliseconds


def read_curve(connection: Connection, points: Table, series: int, limit: int) -> Curve:
    """Up to `limit` points of a series by position (the table's second key), with the first and the last."""
    position = points.primary_key.columns.values()[1]
    of_series = points.c.series == series
    if limit < 1:
        return []
    everything = select(position, points.c.value).where(of_series)
    if connection.scalar(select(position).where(of_series).order_by(position).limit(1).offset(limit)) is None:
        return _curve(connection.execute(everything.order_by(position)).all())
    if limit == 1:
        return _curve(connection.execute(everything.order_by(position.desc()).limit(1)).all())
    thinned = _thin_by_position(connection, points, series, limit)
    if len(thinned) < limit // 2:  # the positions themselves are uneven
        thinned = _thin_by_count(connection, points, series, limit)
    return thinned


def read_best(connection: Connection, points: Table, series: int, largest: bool) -> tuple[int, float, float] | None:
    """(position, value, time_s) of the smallest or largest value, the first of equals. Reads the whole series.

    NaN is never best; None if there is no other value.
    """
    position = points.primary_key.columns.values()[1]
    of_series = (points.c.series == series, points.c.value.is_not(None))
    by_value = points.c.value.desc() if largest else points.c.value
    query = select(position, points.c.value, points.c.time_s).where(*of_series).order_by(by_value, position).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


def read_divergence(connection: Connection, points: Table, series: int, at: int | None) -> tuple[int, tuple[int, float] | None]:
    """(first position of the non-finite values up to `at`, or to the end; the finite point before them, if it is near)."""
    position = points.primary_key.columns.values()[1]
    tail = select(position.label("position"), points.c.value).where(points.c.series == series)
    tail = tail.where(position <= at) if at is not None else tail
    near = tail.order_by(position.desc()).limit(_NEAR).subquery()
    finite = near.c.value.between(-sys.float_info.max, sys.float_info.max)
    last = select(near.c.position, near.c.value).where(finite).order_by(near.c.position.desc()).limit(1)
    found = connection.execute(last).one_or_none()
    since = select(func.min(near.c.position))
    first = connection.scalar(since if found is None else since.where(near.c.position > found[0]))
    return (at or 0) if first is None else first, None if found is None else (found[0], found[1])


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


def _thin_by_count(connection: Connection, points: Table, series: int, limit: int) -> Curve:
    """Every k-th point and the last one. Reads the whole series."""
    position = points.primary_key.columns.values()[1]
    count = connection.scalar(select(func.count()).select_from(points).where(points.c.series == series)) or 0
    every = math.ceil(count / (limit - 1))
    number = (func.row_number().over(order_by=position) - 1).label("number")
    numbered = select(position.label("position"), points.c.value, number).where(points.c.series == series).subquery()
    wanted = (numbered.c.number % every == 0) | (numbered.c.number == count - 1)
    query = select(numbered.c.position, numbered.c.value).where(wanted).order_by(numbered.c.position)
    return _curve(connection.execute(query).all())


def _curve(rows: object) -> Curve:
    return [(position, math.nan if value is None else value) for position, value in rows]  # type: ignore[attr-defined]
