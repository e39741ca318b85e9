"""Pythons for tests of what must run in a job's own environment: a bare venv of this one, and others that the machine has."""

import os
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

OLDEST = (3, 9)
_PLACES = ("~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin", "/usr/local/bin", "/usr/bin")


def bare_venv(directory: Path) -> Path:
    """The interpreter of a fresh virtual environment that holds no package at all."""
    venv.create(directory, with_pip=False, symlinks=True)
    return directory / "bin" / "python"


@cache
def others() -> dict[tuple[int, int], str]:
    """Other minor versions of CPython from 3.9 on that work here, oldest first."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for place in _PLACES:
        root, *parts = Path(place).expanduser().parts
        folders += sorted(Path(root).glob("/".join(parts)))
    found: dict[tuple[int, int], str] = {}
    for minor in range(OLDEST[1], 30):
        version = (3, minor)
        if version == sys.version_info[:2]:
            continue
        path = next((told for folder in folders if (told := _executable(folder / f"python3.{minor}", version))), None)
        if path is not None:
            found[version] = path
    return found


def _executable(path: Path, version: tuple[int, int]) -> str | None:
    """What the interpreter calls itself; None if it does not work, like a shim of pyenv without a version."""
    if not os.access(path, os.X_OK):
        return None
    ask = "import sys; print(*sys.version_info[:2], sys.executable)"
    done = subprocess.run([path, "-I", "-c", ask], capture_output=True, text=True, check=False)
    told = done.stdout.split(maxsplit=2)
    return told[2].strip() if done.returncode == 0 and told[:2] == [*map(str, version)] else None
