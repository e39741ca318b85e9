"""The server of this machine: find it, start it if there is none, restart it if it died."""

import time
from collections.abc import Callable

from trainmaster import live_processes
from trainmaster.client.connection import RESTART_S
from trainmaster.client.settings import Target, embedded_token
from trainmaster.errors import UnreachableError
from trainmaster.home import Home

SOURCE = "embedded"
_LOOK_S = 0.1


class StoppedError(UnreachableError):
    """A user stopped the server on purpose. Log followers then end instead of starting it again."""


def attach(home: Home) -> Target:
    """The server that runs on this machine. If one of its processes is being restarted, wait for it.

    Raises: UnreachableError when none runs.
    """
    until_s = time.monotonic() + RESTART_S
    while True:
        info = live_processes.running(home)
        if info is not None:
            return Target(info.url, embedded_token(home), SOURCE)
        if not half_alive(home) or time.monotonic() > until_s:
            raise UnreachableError("no server is running", "start one: tm up")
        time.sleep(_LOOK_S)


def runs(home: Home) -> bool:
    """Whether this machine's server runs."""
    return live_processes.running(home) is not None


def half_alive(home: Home) -> bool:
    """Whether one of the server's processes lives, so that it will restart the other."""
    return any(live_processes.alive(home, which) for which in live_processes.PROCESSES)


def ensure(home: Home, say: Callable[[str], None]) -> Target:
    """The server of this machine, started if there is none; `say` is called with a message about the start."""
    info = live_processes.running(home)
    if info is None:
        from trainmaster import daemons  # noqa: PLC0415  # rarely needed: mostly a server is running

        info = daemons.start(home)
        if set(info.started) >= set(live_processes.PROCESSES):
            say(f"started a server on this machine: {info.url} (files in {home.root}; it stays until: tm down)")
    return Target(info.url, embedded_token(home), SOURCE)


def revive(home: Home, say: Callable[[str], None]) -> Target:
    """Like `ensure`, but do not start a server that was stopped on purpose. Raises: StoppedError."""
    if live_processes.running(home) is None and (home.root / "stopping").exists():  # written by `daemons.stop`
        raise StoppedError("the server was stopped; its jobs keep running", "start it again: tm up")
    return ensure(home, say)
