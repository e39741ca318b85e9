"""What a server's home takes on its disk, by kind and by the largest jobs: everything is counted, once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.home import Home
from trainmaster.wire import disks
from trainmaster.wire.disks import Size

LARGEST = 10  # jobs that are named
_FILES = (".db", ".db-wal", ".db-shm", ".db-journal")
_ROOMS = {  # directories of the home, and what they are called here
    "cache": "cache",
    "environments": "environments",
    "venvs": "environments",
    "mlflow": "trackers",
    "tracking": "trackers",
    "logs": "server logs",
    "points": "metrics.db",  # on their way there
}
_STORED = ("checkpoints", "artifacts", "code", "provenance")


@dataclass(slots=True)
class Disk:
    """What there is. `jobs`: of each job, by kind; `others` is what belongs to none."""

    kinds: dict[str, Size] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    free_bytes: int = 0

    def add(self, kind: str, size: Size, job: str | None = None) -> None:
        """Count something, as a job's where it is one's."""
        self.kinds[kind] = self.kinds.get(kind, Size()).plus(size)
        if job is not None and size.bytes:
            of_job = self.jobs.setdefault(job, {})
            of_job[kind] = of_job.get(kind, 0) + size.bytes

    def largest(self, count: int = LARGEST) -> list[tuple[str, dict[str, int]]]:
        """The jobs that take most, and how much of each kind."""
        return sorted(self.jobs.items(), key=lambda one: (-sum(one[1].values()), one[0]))[:count]


def use(home: Home) -> Disk:
    """Everything below the home. Linear in the files."""
    found, counted = Disk(), os.statvfs(home.root)
    found.free_bytes = counted.f_bavail * counted.f_frsize
    for path in _below(home.root):
        match path.name:
            case "work":
                _work(found, path)
            case "attempts":
                for job in _below(path):
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


def of_job(home: Home, job: str) -> dict[str, int]:
    """What one job takes in the home, by kind, but for its metrics."""
    found = Disk()
    found.add("logs", disks.size(home.attempts(job)), job)
    _work_of(found, home.jobs_work(job))
    for kind in ("checkpoints", "artifacts"):
        found.add(kind, disks.size(home.blobs / kind / job), job)
    return found.jobs.get(job, {})


def _work(found: Disk, path: Path) -> None:
    for job in _below(path):
        _work_of(found, job)


def _work_of(found: Disk, job: Path) -> None:
    for one in _below(job):
        found.add("set aside" if one.name.endswith(".aside") else "work", disks.size(one), job.name)


def _blobs(found: Disk, path: Path) -> None:
    for kind in _below(path):
        if kind.name in ("checkpoints", "artifacts"):
            for job in _below(kind):
                found.add(kind.name, disks.size(job), job.name)
        else:
            found.add(kind.name if kind.name in _STORED else "other", disks.size(kind))


def _below(path: Path) -> Iterator[Path]:
    try:
        yield from sorted(path.iterdir())
    except OSError:
        return
