"""The server of this machine: finding it, starting it where nobody runs one, reviving it when it died."""

import time
from collections.abc import Callable

from trainmaster import presence
from trainmaster.client.connection import RESTART_S
from trainmaster.client.settings import Target, embedded_token
from trainmaster.errors import UnreachableError
from trainmaster.home import Home

SOURCE = "embedded"
_LOOK_S = 0.1


class StoppedError(UnreachableError):
    """Somebody stopped the server on purpose; whoever follows a job lets go of it rather than start it again."""


def attach(home: Home) -> Target:
    """The server that runs here; one of whose processes is just being brought back is waited for.

    Raises: UnreachableError when none runs.
    """
    until_s = time.monotonic() + RESTART_S
    while True:
        info = presence.running(home)
        if info is not None:
            return Target(info.url, embedded_token(home), SOURCE)
        if not half_alive(home) or time.monotonic() > until_s:
            raise UnreachableError("no server is running", "start one: tm up")
        time.sleep(_LOOK_S)


def runs(home: Home) -> bool:
    """Whether the server of this machine runs."""
    return presence.running(home) is not None


def half_alive(home: Home) -> bool:
    """Whether a process of the server lives, so that the other comes back."""
    return any(presence.alive(home, which) for which in presence.PROCESSES)


def ensure(home: Home, say: Callable[[str], None]) -> Target:
    """The server that runs here, started if there is none; `say` is told of a start."""
    info = presence.running(home)
    if info is None:
        from trainmaster import daemons  # noqa: PLC0415  # seldom: mostly one runs

        info = daemons.start(home)
        if set(info.started) >= set(presence.PROCESSES):
            say(f"started a server on this machine: {info.url} (files in {home.root}; it stays until: tm down)")
    return Target(info.url, embedded_token(home), SOURCE)


def revive(home: Home, say: Callable[[str], None]) -> Target:
    """Like `ensure`, but a server that was stopped on purpose stays so. Raises: StoppedError."""
    if presence.running(home) is None and (home.root / "stopping").exists():  # left there by `daemons.stop`
        raise StoppedError("the server was stopped; its jobs run on", "start it again: tm up")
    return ensure(home, say)
