"""Looking after the reserve of the disk, now and then and by a worker, and telling people when room is short."""

from concurrent.futures import Future

from trainmaster import troubles
from trainmaster.control.workers import Lane, Workers
from trainmaster.reserve import Reserve

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_TOPIC = "disk"


class DiskWatch:
    """Keeps the reserve of one home whole where it can. `register` is where trouble is said."""

    def __init__(self, reserve: Reserve, workers: Workers, root: str, register: troubles.Register = troubles.own) -> None:
        self._reserve, self._workers, self._root, self._register = reserve, workers, root, register
        self._looking: Future[None] | None = None

    def check(self) -> None:
        """Have the disk looked at, unless the last look is not over yet."""
        if self._looking is None or self._looking.done():
            self._looking = self._workers.submit(Lane.DISK, self._look)

    def report_full(self) -> None:
        """Something could not be written although the reserve was asked."""
        self._say("is full to the last byte: what happens to jobs cannot be recorded")

    def _look(self) -> None:
        """By a worker."""
        try:
            found = self._reserve.keep()
        except OSError as error:
            self._register.say(_TOPIC, f"the disk of {self._root} cannot be used: {error}")
            return
        if found.short:
            kind = "is full" if found.full else "is nearly full"
            files = f"only {found.free_files} more files can be made there"
            self._say(f"{kind}: {files if found.few_files else _size(found.free_bytes) + ' free'}")
        else:
            self._register.clear(_TOPIC)

    def _say(self, what: str) -> None:
        advice = "new jobs are refused once it is full, running ones can be cancelled; what takes room: tm storage"
        self._register.say(_TOPIC, f"the disk of {self._root} {what}; {advice}")


def _size(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}"
