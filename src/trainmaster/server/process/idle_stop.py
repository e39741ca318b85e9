"""`idle_stop_s`: a server that nobody needs ends itself, as if somebody had said `tm down`."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainmaster import compose, daemons
from trainmaster.home import Home
from trainmaster.server.runtime.runtime import Runtime

_log = logging.getLogger("trainmaster.idle")

_LOOKS = 4  # in the time after which it ends
_LOOK_MAX_S = 30.0


def looking(desk: Runtime, idle_s: float, stop: Callable[[Home], None] | None = None) -> Callable[[], Awaitable[float | None]]:
    """What looks whether anybody needs the server, and returns when to look again; None once it has told it to end.

    That is after `idle_s` without a job that is not over, a caller and a follower.
    """
    busy_s = time.monotonic()

    async def look() -> float | None:
        nonlocal busy_s
        now_s, seen_s = time.monotonic(), busy_s
        busy_s = now_s  # where the look fails, it is not known to be idle
        if not await asyncio.to_thread(_is_busy, desk):
            busy_s = seen_s
        if time.monotonic() - max(busy_s, desk.called_s) >= idle_s:
            _log.info("nothing to do for %.0f s: stopping", idle_s)
            await asyncio.to_thread(stop or _stop, desk.services.home)
            return None
        return min(idle_s / _LOOKS, _LOOK_MAX_S)

    return look


def _is_busy(desk: Runtime) -> bool:
    """Whether any job is not over, accepted ones included, or somebody follows a log."""
    return bool(desk.followers or any(desk.services.events.live_counts().values()) or desk.waiting.rows())


def _stop(home: Home) -> None:
    """Like a person, from outside: who ends the api cannot be a part of it."""
    command = [sys.executable, "-P", "-m", "trainmaster.server.process.idle_stop", str(home.root)]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")


def leave(home: Home) -> None:
    """Stop the server. A job that was accepted between the decision and the end brings it back: it was answered 201.

    Raises: TrainmasterError.
    """
    daemons.stop(home)
    if compose.is_asked(home):
        daemons.start(home)


if __name__ == "__main__":
    leave(Home(Path(sys.argv[1])))
