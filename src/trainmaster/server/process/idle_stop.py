"""`idle_stop_s`: stops a server that is not in use, like `tm down`."""

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

_LOOKS = 4  # checks per idle period
_LOOK_MAX_S = 30.0


def idle_check(
    api: Runtime, idle_s: float, stop: Callable[[Home], None] | None = None
) -> Callable[[], Awaitable[float | None]]:
    """A background task that stops the server once it was idle for `idle_s`; see `background.supervised`.

    Idle means: no unfinished job, no request of a user, no log follower.
    """
    busy_s = time.monotonic()

    async def look() -> float | None:
        nonlocal busy_s
        now_s, seen_s = time.monotonic(), busy_s
        busy_s = now_s  # if the check fails, the server counts as busy
        if not await asyncio.to_thread(_is_busy, api):
            busy_s = seen_s
        if now_s - max(busy_s, api.activity.last_request_s) >= idle_s:  # not by the time of the answer: a slow one says nothing
            _log.info("nothing to do for %.0f s: stopping", idle_s)
            await asyncio.to_thread(stop or _stop, api.services.home)
            return None
        return min(idle_s / _LOOKS, _LOOK_MAX_S)

    return look


def _is_busy(api: Runtime) -> bool:
    """Whether there is an unfinished or newly accepted job, or a log follower."""
    return bool(api.activity.log_followers or any(api.services.events.live_counts().values()) or api.commands.pending())


def _stop(home: Home) -> None:
    """Start a separate process that stops the server: the api cannot stop itself and wait for the end."""
    command = [sys.executable, "-P", "-m", "trainmaster.server.process.idle_stop", str(home.root)]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")


def stop_unless_asked(home: Home) -> None:
    """Stop the server. If a job was accepted in the meantime, start it again: the job's submit was answered with 201.

    Raises: TrainmasterError.
    """
    daemons.stop(home)
    if compose.is_asked(home):
        daemons.start(home)


if __name__ == "__main__":
    stop_unless_asked(Home(Path(sys.argv[1])))
