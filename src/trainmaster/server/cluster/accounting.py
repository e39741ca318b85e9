"""Adds up charges by project, member, day and so on. Pure and in integers, so that the sums match the events exactly."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal, localcontext
from typing import NamedTuple

from trainmaster.errors import UsageError
from trainmaster.model.ledger import US_PER_HOUR, Charge

_HEADINGS: dict[str, Callable[[Charge, str], str]] = {  # heading -> its value for a charge and a day
    "project": lambda charge, _: charge.payer.project,
    "member": lambda charge, _: charge.payer.member,
    "class": lambda charge, _: charge.payer.work,
    "experiment": lambda charge, _: charge.payer.experiment,
    "pool": lambda charge, _: charge.rate.pool,
    "day": lambda _, day: day,
    "job": lambda charge, _: charge.job,
}
BY = tuple(_HEADINGS)
LINES_MAX = 100_000
_MILLIONTH = Decimal("0.000001")
_DIGITS = 60


class Period(NamedTuple):
    """A period in milliseconds since the epoch. Running attempts are charged up to its end."""

    from_ms: int
    until_ms: int


class Calendar:
    """Calendar days in a time zone; their lengths may differ."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._ends: dict[date, int] = {}

    def parts(self, period: Period) -> Iterator[tuple[str, Period]]:
        """Split a period at midnight: (day, part)."""
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
    """The charges under one heading."""

    gpu_us: int = 0
    cpu_us: int = 0
    lost_gpu_us: int = 0
    lost_cpu_us: int = 0
    jobs: set[str] = field(default_factory=set)
    attempts: set[tuple[str, int]] = field(default_factory=set)
    running: set[tuple[str, int]] = field(default_factory=set)
    priced: dict[tuple[str, float], int] = field(default_factory=dict)  # (currency, price) -> microseconds

    def add(self, charge: Charge, period: Period) -> None:
        """Add the part of a charge that falls into a period."""
        gpu_us, cpu_us = charge.us(*period)
        self.gpu_us += gpu_us
        self.cpu_us += cpu_us
        if charge.lost_from_ms is not None:
            lost_gpu_us, lost_cpu_us = charge.lost_us(*period)
            self.lost_gpu_us += lost_gpu_us
            self.lost_cpu_us += lost_cpu_us
        self.jobs.add(charge.job)
        self.attempts.add(charge[:2])
        if charge.until_ms is None:
            self.running.add(charge[:2])
        rate = charge.rate
        if rate.price:
            price = rate.currency, rate.price
            self.priced[price] = self.priced.get(price, 0) + gpu_us + cpu_us  # one of the two is always 0

    def cost(self) -> dict[str, Decimal]:
        """The cost by currency, rounded to a millionth."""
        found: dict[str, Decimal] = {}
        with localcontext() as context:
            context.prec = _DIGITS
            for (currency, price), us in sorted(self.priced.items()):
                found[currency] = found.get(currency, Decimal(0)) + Decimal(repr(price)) * us / US_PER_HOUR
            return {currency: amount.quantize(_MILLIONTH) for currency, amount in found.items()}


Key = tuple[str, ...]


@dataclass(slots=True)
class Usage:
    """The charges of a period, by heading and in total."""

    lines: dict[Key, Line] = field(default_factory=dict)
    total: Line = field(default_factory=Line)

    def line(self, key: Key) -> Line:
        """The line under a heading. Raises: UsageError."""
        found = self.lines.get(key)
        if found is None:
            if len(self.lines) == LINES_MAX:
                raise UsageError(f"that makes more than {LINES_MAX:,} lines", "take a shorter period, or fewer headings")
            found = self.lines[key] = Line()
        return found

    def ordered(self, by: Sequence[str]) -> list[tuple[Key, Line]]:
        """Lines by usage, largest first; if `day` is a heading, in the order of the headings."""
        if "day" in by:
            return sorted(self.lines.items())
        return sorted(self.lines.items(), key=lambda item: (-item[1].gpu_us, -item[1].cpu_us, item[0]))


def tally(charges: Iterable[Charge], period: Period, by: Sequence[str], calendar: Calendar) -> Usage:
    """Sum up the parts of `charges` in a period under the headings `by` (each one of `BY`).

    An attempt is counted under every heading under which it has a part. Raises: UsageError for more than `LINES_MAX` lines.
    """
    usage, daily, named = Usage(), "day" in by, [_HEADINGS[name] for name in by]
    for charge in charges:
        until_ms = period.until_ms if charge.until_ms is None else min(charge.until_ms, period.until_ms)
        mine = Period(max(charge.from_ms, period.from_ms), until_ms)
        if mine.until_ms < mine.from_ms:
            continue
        usage.total.add(charge, mine)
        for day, part in calendar.parts(mine) if daily else (("", mine),):
            usage.line(tuple([heading(charge, day) for heading in named])).add(charge, part)
    return usage
