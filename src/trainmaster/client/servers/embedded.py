"""The server of this machine: find it, start it if there is none, restart it if it died."""

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from trainmaster import live_processes
from trainmaster.client.connection import RESTART_S
from trainmaster.client.servers.settings import Target, embedded_token
from trainmaster.errors import UnreachableError
from trainmaster.home import Home

SOURCE = "embedded"
_LOOK_S = 0.1
_NAMES_MAX = 1000  # in the directory of a home that does not exist


class StoppedError(UnreachableError):
    """A user stopped the server on purpose. Log followers then end instead of starting it again."""


class AbsentError(UnreachableError):
    """No server runs on this machine's home."""


def attach(home: Home) -> Target:
    """The server that runs on this machine. If one of its processes is being restarted, wait for it.

    Raises: AbsentError when none runs.
    """
    until_s = time.monotonic() + RESTART_S
    while True:
        info = live_processes.running(home)
        if info is not None:
            return Target(info.url, embedded_token(home), SOURCE)
        if not half_alive(home) or time.monotonic() > until_s:
            raise _absent(home)
        time.sleep(_LOOK_S)


def _absent(home: Home) -> AbsentError:
    """No server runs: says which home was looked at, and how it was chosen."""
    named = bool(os.environ.get("TRAINMASTER_HOME"))
    if home.root.is_dir():
        how = "as $TRAINMASTER_HOME says" if named else "the default home"
        return AbsentError(f"no server is running on {home.root} ({how})", "start it: tm up")
    if not named:
        return AbsentError(f"no server is running, and {home.root} (the default home) does not exist", "start one: tm up")
    near = _near(home.root)
    meant = f"did you mean {near}?" if near is not None else "check the name"
    message = f"no server is running: $TRAINMASTER_HOME names {home.root}, which does not exist"
    return AbsentError(message, f"{meant}   a new home there: tm up")


def _near(root: Path) -> Path | None:
    """A home with a similar name beside a directory that does not exist."""
    import difflib  # noqa: PLC0415  # needed for typing errors only

    try:
        with os.scandir(root.parent) as entries:
            names = [entry.name for entry in islice(entries, _NAMES_MAX)]
        near = difflib.get_close_matches(root.name, names, n=3, cutoff=0.7)
        return next((root.parent / name for name in near if Home(root.parent / name).id_file.exists()), None)
    except OSError:
        return None


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
            say(f"started a server on this machine: {info.url} (files in {home.root}; {stays(home)})")
    return Target(info.url, embedded_token(home), SOURCE)


def stays(home: Home) -> str:
    """How long a server that was started stays. Raises: UsageError for a faulty `server.toml`."""
    from trainmaster import configuration  # noqa: PLC0415  # needed at a start only

    idle_s = configuration.load(home).idle_stop_s
    return "it stays until: tm down" if not idle_s else f"it stops after {idle_s:g} s without requests and unfinished jobs"


def revive(home: Home, say: Callable[[str], None]) -> Target:
    """Like `ensure`, but do not start a server that was stopped on purpose. Raises: StoppedError."""
    if live_processes.running(home) is None and (home.root / "stopping").exists():  # written by `daemons.stop`
        raise StoppedError("the server was stopped; its jobs keep running", "start it again: tm up")
    return ensure(home, say)
