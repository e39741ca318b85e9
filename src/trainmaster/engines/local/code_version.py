"""The version of the agent's code, to detect a spawner that was started before an upgrade."""

import os
import sys
from pathlib import Path

from trainmaster import __version__

_ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("agent", "wire", "engines/local")


def version() -> str:
    """The code on disk: release, interpreter, and size and time of every file (a few dozen `stat` calls)."""
    stamps = []
    for room in _ROOMS:
        with os.scandir(_ROOT / room) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    stamps.append(f"{room}/{entry.name}:{status.st_size}:{status.st_mtime_ns}")
    return " ".join([__version__, sys.version.split()[0], sys.prefix, *sorted(stamps)])
