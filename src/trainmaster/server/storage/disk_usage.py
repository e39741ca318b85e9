"""Measures the disk usage of the server's home, by kind and by job. Every file is counted once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.home import Home
from trainmaster.wire import disks
from trainmaster.wire.disks import Size

LARGEST = 10  # jobs that are listed
_FILES = (".db", ".db-wal", ".db-shm", ".db-journal")
_ROOMS = {  # directory of the home -> kind in the report
    "cache": "cache",
    "environments": "environments",
    "venvs": "environments",
    "sdk": "environments",
    "mlflow": "trackers",
    "tracking": "trackers",
    "logs": "server logs",
    "points": "metrics.db",  # points not imported yet
}
_STORED = ("checkpoints", "artifacts", "code", "provenance")


@dataclass(slots=True)
class Disk:
    """Disk usage. `jobs`: by job and kind, also of 0 bytes if it cannot be read; what belongs to no job is only in `kinds`."""

    kinds: dict[str, Size] = field(default_factory=dict)
    jobs: dict[str, dict[str, Size]] = field(default_factory=dict)
    free_bytes: int = 0

    def add(self, kind: str, size: Size, job: str | None = None) -> None:
        """Count something, for a job if it has one."""
        self.kinds[kind] = self.kinds.get(kind, Size()).plus(size)
        if job is not None and (size.bytes or size.unread):
            of_job = self.jobs.setdefault(job, {})
            of_job[kind] = of_job.get(kind, Size()).plus(size)

    def below(self, path: Path, kind: str, job: str | None = None) -> Iterator[Path]:
        """The entries of a directory that holds what is counted as `kind`."""
        try:
            yield from sorted(path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            self.add(kind, Size(unread=1), job)

    def largest(self, count: int = LARGEST) -> list[tuple[str, dict[str, int]]]:
        """The jobs with the largest usage, by kind."""
        found = [(job, {kind: size.bytes for kind, size in of_job.items()}) for job, of_job in self.jobs.items()]
        return sorted(found, key=lambda one: (-sum(one[1].values()), one[0]))[:count]


def use(home: Home) -> Disk:
    """The usage of everything below the home. The cost is linear in the number of files."""
    found, counted = Disk(), os.statvfs(home.root)
    found.free_bytes = counted.f_bavail * counted.f_frsize
    for path in found.below(home.root, "other"):
        match path.name:
            case "work":
                _work(found, path)
            case "attempts":
                for job in found.below(path, "logs"):
                    found.add("logs", disks.size(job), job.name)
            case "blobs":
                _blobs(found, path)
            case name if name in _ROOMS:
                found.add(_ROOMS[name], disks.size(path))
            case name if name.endswith(_FILES):
                found.add(f"{name.partition('.')[0]}.db", disks.size(path))
            case "reserve":
                found.add("reserve", disks.size(path))
            case _:
                found.add("other", disks.size(path))
    return found


def of_job(home: Home, job: str) -> dict[str, Size]:
    """The usage of one job in the home, by kind, without its metrics."""
    found = Disk()
    found.add("logs", disks.size(home.attempts(job)), job)
    _work_of(found, home.jobs_work(job))
    for kind in ("checkpoints", "artifacts"):
        found.add(kind, disks.size(home.blobs / kind / job), job)
    return found.jobs.get(job, {})


def _work(found: Disk, path: Path) -> None:
    for job in found.below(path, "work"):
        _work_of(found, job)


def _work_of(found: Disk, job: Path) -> None:
    for one in found.below(job, "work", job.name):
        found.add("set aside" if one.name.endswith(".aside") else "work", disks.size(one), job.name)


def _blobs(found: Disk, path: Path) -> None:
    for kind in found.below(path, "other"):
        if kind.name in ("checkpoints", "artifacts"):
            for job in found.below(kind, kind.name):
                found.add(kind.name, disks.size(job), job.name)
        else:
            found.add(kind.name if kind.name in _STORED else "other", disks.size(kind))
