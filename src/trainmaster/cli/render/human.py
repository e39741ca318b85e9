"""Formats numbers and times for reading. Pure. `--json` has the exact values."""

import math
from collections.abc import Mapping
from typing import Any

_RATES = ((1e12, "Tbps"), (1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps"))
_SPANS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(seconds: float) -> str:
    """`less than 0.1 s`, `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `4 d 1 h`."""
    if seconds < 0.1:
        return "less than 0.1 s"
    if seconds < 10:
        return f"{math.floor(seconds * 10) / 10:g} s"
    whole = int(seconds)
    for size, unit, small, small_unit in _SPANS:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def ago(then_s: float | None, now_s: float) -> str:
    """`2 min ago`, in its largest unit only; `-` for never."""
    if then_s is None:
        return "-"
    past_s = max(0.0, now_s - then_s)
    if past_s < 1:
        return "just now"
    return f"{short(past_s)} ago"


def short(seconds: float) -> str:
    """A duration in its largest unit only: `45 s`, `12 min`, `3 h`, `2 d`."""
    for size, unit, *_ in _SPANS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def about(seconds: float) -> str:
    """An estimated time with about two digits: `40 s`, `12 min`, `2.5 h`, `3.2 d`."""
    for size, most, unit in ((1, 90, "s"), (60, 90, "min"), (3600, 36, "h")):
        if seconds / size < most:
            amount = seconds / size
            return f"{amount:.0f} {unit}" if unit != "h" or amount >= 10 else f"{round(amount, 1):g} {unit}"
    return f"{round(seconds / 86400, 1):g} d"


def between(low_s: float, high_s: float | None) -> str:
    """`8 to 20 min`, `2 min to 1.5 h`, `up to 3 min`; without an upper bound `from 2 min on`."""
    low = about(low_s)
    if high_s is None:
        return f"from {low} on"
    high = about(high_s)
    if low == high:
        return low
    if low == "0 s":
        return f"up to {high}"
    (amount, unit), other = low.split(), high.split()[1]
    return f"{amount} to {high}" if unit == other else f"{low} to {high}"


def size(count: float) -> str:
    """Bytes: `512 B`, `3.4 kB`, `1.2 GB` (decimal units, as for disks)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{int(count)} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("unreachable: TB fits everything")


def memory(count: float) -> str:
    """Bytes of memory: `512 MiB`, `64 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError("unreachable: TiB fits everything")


def memory_of(part: float, whole: float) -> str:
    """`21.5 of 64 GiB`: both in the unit of the whole."""
    told, unit = memory(whole).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    return f"{part / factor:.4g} of {told} {unit}"


def rate(rate_bps: float) -> str:
    """Bits per second: `2.5 Gbps`."""
    factor, unit = _rate_unit(rate_bps)
    return f"{rate_bps / factor:.4g} {unit}"


def rate_of(part: float, whole: float) -> str:
    """`60 of 100 Gbps`: both in the unit of the whole."""
    return f"{part / _rate_unit(whole)[0]:.4g} of {rate(whole)}"


def _rate_unit(rate_bps: float) -> tuple[float, str]:
    return next(((factor, unit) for factor, unit in _RATES if rate_bps >= factor), (1.0, "bps"))


def counted(need: Mapping[str, Any]) -> list[str]:
    """Requested resources other than GPUs, CPUs and memory: `disk 10 GiB`, `license 1`."""
    told = [f"disk {memory(need['disk_bytes'])}"] if need.get("disk_bytes") else []
    told += [f"network {rate(need['network_bps'])}"] if need.get("network_bps") else []
    return told + [f"{name} {amount:g}" for name, amount in (*need.get("accelerators", ()), *need.get("custom", ()))]


def number(value: float | None) -> str:
    """A metric's value with at most four significant digits, unless that loses information."""
    if value is None:
        return "-"
    if math.isfinite(value) and abs(value) < 1e9 and value == int(value):
        return str(int(value))
    return f"{value:.4g}"


def diverged(one: Mapping[str, Any]) -> str:
    """`nan since step 4, last finite 0.3333 at 3`."""
    since = "" if one["since_step"] is None else f" since step {one['since_step']}"
    at = "" if one["last_step"] is None else f" at {one['last_step']}"
    finite = "" if one["last_value"] is None else f", last finite {number(one['last_value'])}{at}"
    return f"{one['value']}{since}{finite}"


def middle(text: str, most: int) -> str:
    """`text` cut to at most `most` characters, with `…` in the middle."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[len(text) - most // 3 + 1 :]}"


def printable(text: str) -> str:
    """`text` with control characters escaped, except line breaks and tabs, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def trouble(one: Mapping[str, Any]) -> str:
    """One of a job's troubles, with the attempt and node that reported it."""
    attempt = f"attempt {one['attempt']}" if one["attempt"] else ""
    teller = ", ".join(part for part in (attempt, f"node {one['node']}" if one["node"] else "") if part)
    return f"{teller}: {one['text']}" if teller else str(one["text"])


def plural(count: int, noun: str) -> str:
    """`1 file`, `3 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def span(seconds: float) -> str:
    """A mean duration with one decimal: `3.4 d`, `5.2 h`, `47 s`."""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:,.1f} {unit}"
    return f"{seconds:.0f} s"


def csv_cell(text: str) -> str:
    """A name as safe CSV text: a spreadsheet would compute a name that begins like a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
