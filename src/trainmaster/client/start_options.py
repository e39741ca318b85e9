"""Parses the options that delay a job or make an array: `--after JOB:ok`, `--begin 22:00`, `--array 0-9%2`."""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from trainmaster.errors import UsageError

_WHEN = ("ok", "any", "failed")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\Z")
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?\Z")
_TASKS_MAX = 10_000  # jobs that the server accepts in one request
_EXAMPLES = "a time: 22:00   a date: 2026-12-24, '2026-12-24 08:00'   a while from now: +2h"


class Array(NamedTuple):
    """An array: the index of each task, and how many may be active at once (0: no limit)."""

    indices: tuple[int, ...]
    at_most: int = 0


def start_of(after: Sequence[str], begin: str | float | None, now_s: float | None = None) -> dict[str, Any] | None:
    """The start conditions of a request; None if there are none. Raises: UsageError."""
    start: dict[str, Any] = {}
    if after:
        start["after"] = [_dependency(text) for text in after]
    if begin is not None:
        start |= begin_of(begin, time.time() if now_s is None else now_s)
    return start or None


def overridden(own: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Start conditions of a script, of which given ones replace those of the same kind."""
    begins = ("begin_s", "begin_in_s")
    kept = {name: value for name, value in (own or {}).items() if not (given and name in begins and given.keys() & set(begins))}
    return {**kept, **(given or {})} or None


def _dependency(text: str) -> dict[str, str]:
    job, colon, when = text.rpartition(":")
    job, when = (job, when) if colon else (text, "ok")
    if not job or when not in _WHEN:
        hint = "JOB:ok (it succeeds; the default), JOB:any (it ends), JOB:failed (it fails)"
        raise UsageError(f"after: {text!r} does not say after what", hint)
    return {"job": job, "when": when}


def begin_of(text: str | float, now_s: float) -> dict[str, float]:
    """What `22:00` (the next one), a date or `+2h` means here, as `begin_s` or `begin_in_s`. Raises: UsageError."""
    if not isinstance(text, str):
        return {"begin_s": float(text)}
    text = text.strip()
    now, clock = datetime.fromtimestamp(now_s), _CLOCK.match(text)
    try:
        if text.startswith("+"):
            from trainmaster.spec.fields.values import duration_s  # noqa: PLC0415  # the validator is a slow import

            if text[1:].isdecimal():
                raise UsageError(f"begin: {text!r} has no unit", f"{text}s, {text}m, {text}h or {text}d")
            return {"begin_in_s": duration_s(text[1:])}
        if clock is None:
            return {"begin_s": datetime.fromisoformat(text).timestamp()}
        hour, minute, second = (int(part or 0) for part in clock.groups())
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return {"begin_s": (today if today.timestamp() > now_s else today + timedelta(days=1)).timestamp()}
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"begin: {text!r} is not a time", _EXAMPLES) from error


def array_of(text: str) -> Array:
    """`0-9`, `0-9%2`, `0-30:10`, `1,3,7`. Raises: UsageError."""
    listed, percent, most = text.partition("%")
    indices: list[int] = []
    wrong = UsageError(f"array: {text!r} is not an array", "0-9   0-9%2 (at most two at once)   0-30:10   1,3,7")
    if percent and not (most.isdecimal() and 1 <= int(most[:6]) <= _TASKS_MAX):
        raise wrong
    for part in listed.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise wrong
        first, step = int(match[1]), int(match[3] or 1)
        last = int(match[2] or first)
        if last < first or not step:
            raise wrong
        if (last - first) // step >= _TASKS_MAX - len(indices):
            raise UsageError(f"array: {text!r} has more than {_TASKS_MAX:,} tasks", "split it")
        indices += range(first, last + 1, step)
    return Array(tuple(dict.fromkeys(indices)), int(most) if percent else 0)
