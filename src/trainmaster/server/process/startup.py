"""What each process of a server does at the end of its start."""

import gc

from trainmaster.errors import ConflictError
from trainmaster.home import Home


def refuse_stopped(home: Home, detached: bool) -> None:
    """One that was still on its way when the server was stopped ends by itself; called with its lock held, so that either
    it sees the mark or the stop sees the lock. Raises: ConflictError.
    """
    if detached and (home.root / "stopping").exists():
        raise ConflictError("the server was stopped meanwhile", "start it again: tm up")


def settle() -> None:
    """The start is over: what it made stays, so the collector, which slept through it, need never look at it again.

    No collection comes first: it would find a thousand objects among a hundred thousand, in a tenth of the start.
    """
    gc.freeze()
    gc.enable()
