"""Reads the options of `sbatch` that delay a job, make an array, or name who is told of its end."""

import re
from datetime import datetime

from trainmaster.model.options.notify_targets import kind_of

_WHEN = {"afterok": "ok", "afterany": "any", "afternotok": "failed"}
_ARRAY = re.compile(r"\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?(?:,\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?)*(?:%\d{1,4})?\Z", re.ASCII)
_NOW = re.compile(r"now(?:\+(?P<count>\d{1,8})(?P<unit>[a-z]*))?\Z", re.ASCII)
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?\Z", re.ASCII)
_NAMED = {"midnight": "00:00", "noon": "12:00", "teatime": "16:00"}
_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_ENDS, _FAILURES = {"END", "ALL"}, {"FAIL", "TIME_LIMIT", "INVALID_DEPEND"}


def dependencies(value: str) -> tuple[str, ...]:
    """`afterok:12:13,afterany:14` as `JOB:WHEN`. Raises: ValueError that says what is wrong."""
    found: list[str] = []
    for part in value.split(","):
        kind, _, jobs = part.partition(":")
        if "?" in part or kind in ("after", "aftercorr", "afterburstbuffer", "singleton"):
            raise ValueError(f"{part} has no equivalent; use afterok, afterany or afternotok, which must all hold")
        if kind not in _WHEN or not jobs or not all(jobs.split(":")):
            raise ValueError("expected afterok:JOB, afterany:JOB or afternotok:JOB")
        found += [f"{job}:{_WHEN[kind]}" for job in jobs.split(":")]
    return tuple(found)


def begin(value: str) -> str | None:
    """A time as `--begin` reads it; None: at once. Raises: ValueError that says what is expected."""
    text = value.strip()
    now = _NOW.match(text.replace(" ", ""))
    if now is not None:
        unit = _UNITS_S.get((now["unit"] or "second").removesuffix("s"))
        if unit is not None:
            return f"+{int(now['count']) * unit}s" if int(now["count"] or 0) else None
    if text in _NAMED or _CLOCK.match(text):
        return _NAMED.get(text, text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected 22:00, now+2hours or 2026-12-24T08:00") from None
    return text


def array(value: str) -> str:
    """An array as `--array` reads it, which is the same form. Raises: ValueError that says what is expected."""
    if not _ARRAY.match(value):
        raise ValueError("expected indexes such as 0-9, 0-9%2, 0-30:10 or 1,3,7")
    return value


def notified(user: str | None, types: str) -> tuple[dict[str, object], str | None]:
    """Options of a submit for `--mail-user` and `--mail-type`, and what to say of them."""
    wanted = set(filter(None, types.upper().split(","))) - {"NONE"}
    if not wanted:
        return {}, "no mail is sent without a --mail-type, as with sbatch" if user else None
    if user is None or kind_of(user) != "mail":
        return {}, "no mail is sent: an address is needed; add --notify ADDRESS"
    if not wanted & (_ENDS | _FAILURES):
        return {}, "no mail is sent: only of its end, with END or FAIL"
    told: dict[str, object] = {"notify": (user,)}
    if not wanted & _ENDS:
        told["notify_on"] = "failure"
    return told, None if wanted <= _ENDS | _FAILURES else "a mail is sent of its end only"
