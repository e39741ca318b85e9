"""Which code agents are made of, so that a spawner left over from before an upgrade is noticed."""

import json
import sys
from pathlib import Path

from trainmaster import __version__

_SOURCES = ("agent", "wire", "engines/local/spawner.py")


def _stamped() -> str:
    root = Path(__file__).resolve().parents[2]
    files: list[Path] = []
    for source in _SOURCES:
        path = root / source
        files.extend(sorted(path.glob("*.py")) if path.is_dir() else [path])
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return json.dumps([__version__, sys.executable, stamps], separators=(",", ":"))


VERSION = _stamped()  # taken when a process starts, as the code it runs is
