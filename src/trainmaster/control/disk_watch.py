"""Watches the disk of the home: keeps its reserve at full size and reports when free space is low."""

from concurrent.futures import Future

from trainmaster import troubles
from trainmaster.control.workers import Lane, Workers
from trainmaster.reserve import Reserve

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_TOPIC = "disk"


class DiskWatch:
    """Keeps the disk reserve of one home at full size where possible. Problems are reported to `register`."""

    def __init__(self, reserve: Reserve, workers: Workers, root: str, register: troubles.Register = troubles.own) -> None:
        self._reserve, self._workers, self._root, self._register = reserve, workers, root, register
        self._looking: Future[None] | None = None

    def check(self) -> None:
        """Start a check of the disk, unless the last one still runs."""
        if self._looking is None or self._looking.done():
            self._looking = self._workers.submit(Lane.DISK, self._look)

    def report_full(self) -> None:
        """Report that a write failed although the reserve was released."""
        self._say("is completely full: job events cannot be recorded")

    def _look(self) -> None:
        """Run by a worker."""
        try:
            found = self._reserve.keep()
        except OSError as error:
            self._register.say(_TOPIC, f"the disk of {self._root} cannot be used: {error}")
            return
        if found.short:
            kind = "is full" if found.full else "is nearly full"
            files = f"only {found.free_files} more files can be created there"
            self._say(f"{kind}: {files if found.few_files else _size(found.free_bytes) + ' free'}")
        else:
            self._register.clear(_TOPIC)

    def _say(self, what: str) -> None:
        advice = "new jobs are rejected once it is full, running ones can be cancelled; to see what uses the space: tm storage"
        self._register.say(_TOPIC, f"the disk of {self._root} {what}; {advice}")


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}"
