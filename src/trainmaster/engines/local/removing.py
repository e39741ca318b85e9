"""Removes files of a job on this machine: its work directories and attempt directories, or the early part of them."""

import re
from collections.abc import Iterator
from pathlib import Path

from trainmaster.home import Home
from trainmaster.model.storage_kinds import ATTEMPTS_KEPT, StorageKind
from trainmaster.wire import disks

_OUTPUT = ("rank*.log*", "role-*.log*", "rank*.sdk", "role-*.sdk")
_NUMBER = re.compile(r"\d+")


def clear(home: Home, job: str, kind: str) -> int:
    """Remove files of one kind; returns the number of bytes. Raises: OSError."""
    return sum(disks.remove(path) for path in list(_paths(home, job, kind)))


def _paths(home: Home, job: str, kind: str) -> Iterator[Path]:
    match kind:
        case StorageKind.WORK:
            yield home.jobs_work(job)
        case StorageKind.LOGS:
            yield home.attempts(job)
        case StorageKind.ASIDE:
            for path in home.jobs_work(job).glob("*.aside/*"):
                begins = _NUMBER.match(path.name)
                if begins is not None and int(begins[0]) in _early(home, job):
                    yield path
        case StorageKind.EARLY_LOGS:
            for number in _early(home, job):
                for pattern in _OUTPUT:
                    yield from home.attempts(job).glob(f"{number}/n*/{pattern}")


def _early(home: Home, job: str) -> list[int]:
    """All attempts except the newest few."""
    numbers = sorted(int(path.name) for path in home.attempts(job).glob("*") if path.name.isdecimal())
    return numbers[:-ATTEMPTS_KEPT]
