"""Charges added up by whom, where and when. Pure, in whole numbers to the end: the sums are those of the events, exactly."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal, localcontext
from typing import NamedTuple

from trainmaster.model.ledger import US_PER_HOUR, Charge

BY = ("project", "member", "class", "experiment", "pool", "day", "job")
_MILLIONTH = Decimal("0.000001")
_DIGITS = 60


class Period(NamedTuple):
    """From … until, in milliseconds since the epoch; what runs is charged up to its end."""

    from_ms: int
    until_ms: int


class Calendar:
    """Days as they are somewhere, however long each is."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._ends: dict[date, int] = {}

    def parts(self, period: Period) -> Iterator[tuple[str, Period]]:
        """A period cut at midnights: (day, its part)."""
        at_ms = period.from_ms
        while at_ms < period.until_ms:
            day = datetime.fromtimestamp(at_ms / 1000, self._zone).date()
            end_ms = min(max(self._end_ms(day), at_ms + 1), period.until_ms)
            yield day.isoformat(), Period(at_ms, end_ms)
            at_ms = end_ms

    def _end_ms(self, day: date) -> int:
        if day not in self._ends:
            midnight = datetime.combine(day + timedelta(days=1), time(), self._zone)
            self._ends[day] = round(midnight.timestamp() * 1000)
        return self._ends[day]


@dataclass(slots=True)
class Line:
    """What was charged under one heading."""

    gpu_us: int = 0
    cpu_us: int = 0
    lost_gpu_us: int = 0
    lost_cpu_us: int = 0
    jobs: set[str] = field(default_factory=set)
    attempts: set[tuple[str, int]] = field(default_factory=set)
    running: set[tuple[str, int]] = field(default_factory=set)
    priced: dict[tuple[str, float], int] = field(default_factory=dict)  # microseconds by currency and price

    def add(self, charge: Charge, period: Period) -> None:
        """The part of a charge that falls into a period."""
        gpu_us, cpu_us = charge.us(*period)
        lost_gpu_us, lost_cpu_us = charge.lost_us(*period)
        self.gpu_us += gpu_us
        self.cpu_us += cpu_us
        self.lost_gpu_us += lost_gpu_us
        self.lost_cpu_us += lost_cpu_us
        self.jobs.add(charge.job)
        self.attempts.add((charge.job, charge.attempt))
        if charge.until_ms is None:
            self.running.add((charge.job, charge.attempt))
        if charge.rate.price:
            price = charge.rate.currency, charge.rate.price
            self.priced[price] = self.priced.get(price, 0) + gpu_us + cpu_us  # one of the two is 0

    def cost(self) -> dict[str, Decimal]:
        """By currency, to a millionth."""
        found: dict[str, Decimal] = {}
        with localcontext() as context:
            context.prec = _DIGITS
            for (currency, price), us in sorted(self.priced.items()):
                found[currency] = found.get(currency, Decimal(0)) + Decimal(repr(price)) * us / US_PER_HOUR
            return {currency: amount.quantize(_MILLIONTH) for currency, amount in found.items()}


Key = tuple[str, ...]


@dataclass(slots=True)
class Usage:
    """What was charged in a period, under each heading and in all."""

    lines: dict[Key, Line] = field(default_factory=dict)
    total: Line = field(default_factory=Line)

    def ordered(self, by: Sequence[str]) -> list[tuple[Key, Line]]:
        """Who had most first; with days among the headings by them, in the order of the headings."""
        if "day" in by:
            return sorted(self.lines.items())
        return sorted(self.lines.items(), key=lambda item: (-item[1].gpu_us, -item[1].cpu_us, item[0]))


def tally(charges: Iterable[Charge], period: Period, by: Sequence[str], calendar: Calendar) -> Usage:
    """Add up what falls into a period under the headings `by`, each one of `BY`. An attempt counts wherever it has a part."""
    usage, daily = Usage(), "day" in by
    for charge in charges:
        until_ms = period.until_ms if charge.until_ms is None else min(charge.until_ms, period.until_ms)
        mine = Period(max(charge.from_ms, period.from_ms), until_ms)
        if mine.until_ms < mine.from_ms:
            continue
        usage.total.add(charge, mine)
        for day, part in calendar.parts(mine) if daily else [("", mine)]:
            headings = {
                **charge.payer._asdict(),
                "class": charge.payer.work,
                "pool": charge.rate.pool,
                "job": charge.job,
                "day": day,
            }
            key = tuple(headings[name] for name in by)
            usage.lines.setdefault(key, Line()).add(charge, part)
    return usage
