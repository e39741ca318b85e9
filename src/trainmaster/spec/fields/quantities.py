"""Parses quantities of counted resources in a spec or `server.toml`: bandwidths, device counts, custom amounts.

Memory and disk sizes are in `spec.fields.values`.
"""

import re

from trainmaster.model.ids import NAME
from trainmaster.spec.faults import nearest
from trainmaster.spec.fields.values import is_number, refusal, valid_name

_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z/]*)\Z", re.ASCII)
_RATE_UNITS = {"bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12}
_RATE_EXAMPLE = "a bandwidth in bits per second such as 100Gbps or 2.5Gbps"
_RATE_MAX_BPS = 1e15
COUNT_MAX = 100_000
AMOUNT_MAX = 1e9


def bandwidth_bps(value: object) -> float:
    """`100Gbps` → bits per second."""
    match = _RATE.match(value.strip()) if isinstance(value, str) and len(value) <= 40 else None
    if match is None:
        number = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10_000
        raise refusal(_RATE_EXAMPLE, value, f"{value}Gbps" if number else None)
    unit = match["unit"]
    if unit not in _RATE_UNITS:
        raise refusal(_RATE_EXAMPLE, value, _near_rate(match["number"], unit))
    rate_bps = float(match["number"]) * _RATE_UNITS[unit]
    if not 1000 <= rate_bps <= _RATE_MAX_BPS:
        raise refusal("a bandwidth from 1kbps to 1000Tbps", value)
    return rate_bps


def _near_rate(number: str, unit: str) -> str | None:
    if not unit:
        return f"{number}Gbps"
    if unit in ("GB/s", "MB/s", "KB/s", "kB/s", "TB/s", "GBps", "MBps"):  # bytes: multiply by eight
        prefix = "k" if unit[0] in "kK" else unit[0]
        return f"{float(number) * 8:g}{prefix}bps"
    near = nearest(unit, [name.lower() for name in _RATE_UNITS], 0.4)
    return next((f"{number}{name}" for name in _RATE_UNITS if name.lower() == near), None)


def rate_text(rate_bps: float) -> str:
    """Text that means exactly `rate_bps`."""
    for unit, factor in reversed(_RATE_UNITS.items()):
        if rate_bps % factor == 0:
            return f"{rate_bps / factor:.0f}{unit}"
    return f"{rate_bps!r}bps"


def count(value: object) -> int:
    """A number of devices of a kind."""
    expected = f"a whole number from 1 to {COUNT_MAX:,}"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_MAX:
        return value
    if isinstance(value, str) and re.fullmatch("[1-9][0-9]{0,4}", value):
        raise refusal(expected + " (without quotes)", value, value)
    whole = isinstance(value, float) and value.is_integer() and 1 <= value <= COUNT_MAX
    raise refusal(expected, value, str(int(value)) if whole and isinstance(value, float) else None)


def amount(value: object) -> float:
    """An amount of a custom resource; may be fractional."""
    expected = f"a number greater than 0, at most {AMOUNT_MAX:,.0f}"
    if not is_number(value):
        number = isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) is not None
        raise refusal(expected + (" (without quotes)" if number else ""), value, str(value) if number else None)
    if not 0.001 <= value <= AMOUNT_MAX:
        raise refusal(expected, value)
    return float(value)


def kind(name: str) -> str:
    """The kind of an accelerator, in lower case."""
    lowered = counted_name(name).lower()
    if lowered != name:
        raise refusal("a kind in lower case", name, lowered)
    return name


def counted_name(name: str) -> str:
    """The name of a counted resource."""
    if NAME.match(name) is None:
        raise refusal("a name of letters, digits, '-', '_' and '.', such as license", name, valid_name(name) or None)
    return name
