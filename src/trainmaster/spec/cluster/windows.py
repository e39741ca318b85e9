"""Parses maintenance windows: `2026-12-01T22:00/4h`, `Sun 22:00/4h`, `daily 03:00+01:00/30m`.

A time without an offset is UTC. The first occurrence of a weekly or daily window is in the week of the epoch, so parsing
needs no clock.
"""

import re
from datetime import UTC, datetime, timedelta

from trainmaster.model.cluster import DAY_S, WEEK_S
from trainmaster.spec.fields.values import duration_s, refusal, text
from trainmaster.spec.mapping import duration_text

_DAYS = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")  # the epoch was a Thursday
_EXPECTED = "a window such as 2026-12-01T22:00/4h, 'Sun 22:00/4h' or 'daily 03:00+01:00/30m' (UTC without an offset)"
_OFFSET = r"(?P<offset>Z|[+-]\d{2}:\d{2})?"
_ONCE = re.compile(rf"(?P<day>\d{{4}}-\d{{2}}-\d{{2}})[T ](?P<clock>\d{{1,2}}:\d{{2}}(:\d{{2}})?){_OFFSET}\Z")
_AGAIN = re.compile(rf"(?P<day>[A-Za-z]+)\s+(?P<clock>\d{{1,2}}:\d{{2}}(:\d{{2}})?){_OFFSET}\Z")

Span = tuple[float, float, float]  # from_s, until_s, every_s


def span(value: object) -> Span:
    """Start, end and period of a window in seconds. Raises: a refusal."""
    written = text(value, _EXPECTED).strip()
    beginning, slash, length = written.rpartition("/")
    if not slash:
        raise refusal(_EXPECTED, value, f"{written}/4h" if _ONCE.match(written) or _AGAIN.match(written) else None)
    length_s = duration_s(length)
    if length_s != int(length_s):
        raise refusal(_EXPECTED, value, message=f"{length} is no whole number of seconds; expected {_EXPECTED}")
    once, again = _ONCE.match(beginning.strip()), _AGAIN.match(beginning.strip())
    if once is not None:
        from_s = _moment(f"{once['day']}T{once['clock']:0>5}{_zone(once['offset'])}", value)
        return from_s, from_s + length_s, 0.0
    if again is None:
        raise refusal(_EXPECTED, value)
    every_s = DAY_S if again["day"].lower() in ("daily", "day") else WEEK_S
    if length_s >= every_s:
        raise refusal(_EXPECTED, value, message=f"{length} is as long as the period: nothing could ever run")
    day = 0 if every_s == DAY_S else _day(again["day"], value)
    from_s = _moment(f"1970-01-{1 + day:02}T{again['clock']:0>5}{_zone(again['offset'])}", value) % every_s
    return from_s, from_s + length_s, every_s


def span_text(found: Span) -> str:
    """Text that `span` parses to the same window."""
    from_s, until_s, every_s = found
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=from_s)
    clock = at.strftime("%H:%M:%S").removesuffix(":00")
    day = f"{at.year:04}-{at.strftime('%m-%dT')}" if not every_s else "daily " if every_s == DAY_S else f"{at.strftime('%a')} "
    return f"{day}{clock}/{duration_text(until_s - from_s)}"


def _day(word: str, value: object) -> int:
    """The weekday as days since the epoch's."""
    short = word[:3].capitalize()
    if short not in _DAYS:
        raise refusal(_EXPECTED, value, message=f"{word!r} is not a day of the week; expected {_EXPECTED}")
    return _DAYS.index(short)


def _zone(offset: str | None) -> str:
    return "+00:00" if offset in (None, "Z") else str(offset)


def _moment(iso: str, value: object) -> float:
    try:
        return datetime.fromisoformat(iso).timestamp()
    except (ValueError, OverflowError) as error:
        raise refusal(_EXPECTED, value, message=f"there is no such time: {error}") from error
