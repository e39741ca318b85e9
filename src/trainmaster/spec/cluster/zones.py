"""Time zones by name: `UTC`, `Europe/Berlin`, `+02:00`."""

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainmaster.errors import UsageError

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)\Z")


def zone_of(name: str) -> tzinfo:
    """The time zone of this name. Raises: UsageError."""
    if name == "UTC":
        return UTC
    match = _OFFSET.match(name)
    if match is not None and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name[:40]!r}", "write UTC, a name such as Europe/Berlin, or +02:00") from None
