"""Steps at the end of every process's start-up."""

import gc

from trainmaster.errors import ConflictError
from trainmaster.home import Home


def refuse_if_stopping(home: Home, detached: bool) -> None:
    """End the start-up of a detached process if the server was stopped meanwhile. Raises: ConflictError.

    Called with the process's lock held: either this sees the stop mark, or the stop sees the lock.
    """
    if detached and (home.root / "stopping").exists():
        raise ConflictError("the server was stopped while it started", "start it again: tm up")


def resume_collector() -> None:
    """Exclude all objects made at start-up from garbage collection, then enable the collector.

    There is no collection first: it would take a tenth of the start-up time and free about 1 % of the objects.
    """
    gc.freeze()
    gc.enable()
