"""Parses durations and times on the command line, and finds this machine's time zone."""

import os
import re
from datetime import datetime, timedelta, tzinfo

from trainmaster.errors import UsageError

_ZONES = "/zoneinfo/"
_BACK = {"today": 0, "yesterday": 1}  # days ago
_BARE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?")
_EPOCH = re.compile(r"\d{9,10}(\.\d+)?\Z")  # as `--json` has times


def is_bare(text: str) -> bool:
    """Whether it is a number without a unit, which means minutes to some and days to others."""
    return _BARE.fullmatch(text.strip()) is not None


def seconds(text: str, option: str, hint: str, unit: str = "d") -> float:
    """`90m`, `24h`, `7d`, `0`. `unit`: what a number without one most likely means. Raises: UsageError."""
    from pydantic_core import PydanticCustomError  # noqa: PLC0415  imported only if a duration is given

    from trainmaster.spec.fields.values import duration_s  # noqa: PLC0415  it imports pydantic

    if text.strip() in ("0", "0s"):
        return 0.0
    if is_bare(text):
        raise _of_what(text, option, unit, hint)
    try:
        return duration_s(text)
    except PydanticCustomError as error:
        raise UsageError(f"{option}: {error.message()}", hint) from error


def _of_what(text: str, option: str, unit: str, hint: str) -> UsageError:
    number = text.strip()
    return UsageError(f"{option}: {number} of what?; did you mean '{number}{unit}'?", hint)


def moment(text: str, option: str, now_s: float, zone: tzinfo | None = None) -> float:
    """Parse `7d` (ago), `now`, `today`, `yesterday`, `2026-11-30`, `2026-11-30T14:00`, `1795183200` or `all` to epoch seconds.

    Days and times are in `zone`, default this machine's. Raises: UsageError.
    """
    hint = "write how long ago (90m, 24h, 7d), a day (2026-11-30, today, yesterday), a time (2026-11-30T14:00), or all"
    if text in ("all", "now"):
        return 0.0 if text == "all" else now_s
    if _EPOCH.match(text):
        return float(text)
    day = text
    if text in _BACK:
        day = (datetime.fromtimestamp(now_s, zone).date() - timedelta(days=_BACK[text])).isoformat()
    try:
        there = datetime.fromisoformat(day)
        return max(0.0, (there.replace(tzinfo=zone) if there.tzinfo is None else there).timestamp())
    except (ValueError, OverflowError, OSError):
        if "-" in text:
            raise UsageError(f"{option}: there is no day or time {text[:40]!r}", hint) from None
    if is_bare(text):
        raise _of_what(text, option, "d", hint)
    try:
        return max(0.0, now_s - seconds(text, option, hint))
    except UsageError as error:
        near = error.message.partition("; did you mean ")[2]
        meant = f"; did you mean {near}" if near else ""
        raise UsageError(f"{option}: {text[:40]!r} is neither a time nor how long ago{meant}", hint) from None


def zone() -> str:
    """The name of this machine's time zone, such as Europe/Berlin; without a name its present offset from UTC: +02:00."""
    for name in (os.environ.get("TZ", "").lstrip(":"), os.path.realpath("/etc/localtime").rpartition(_ZONES)[2]):
        if _known(name):
            return "UTC" if name in ("Etc/UTC", "Etc/UCT", "UCT") else name
    told = datetime.now().astimezone().isoformat()[-6:]
    return "UTC" if told == "+00:00" else told


def _known(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415  imported only if days matter

    try:
        return bool(name) and name[0] != "/" and ZoneInfo(name) is not None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
