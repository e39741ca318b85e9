"""`idle_stop_s`: a server that nobody needs ends itself, as if somebody had said `tm down`."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from trainmaster.errors import TrainmasterError
from trainmaster.home import Home
from trainmaster.server.runtime import Runtime

_log = logging.getLogger("trainmaster.idle")

_LOOKS = 4  # in the time after which it ends
_LOOK_MAX_S = 30.0


async def stop_when_idle(desk: Runtime, idle_s: float, stop: Callable[[Home], None] | None = None) -> None:
    """Return once the server was told to end: no job that is not over, no caller and no follower for `idle_s`."""
    busy_s = time.monotonic()
    while True:
        await asyncio.sleep(min(idle_s / _LOOKS, _LOOK_MAX_S))
        try:
            if await asyncio.to_thread(_is_busy, desk):
                busy_s = time.monotonic()
        except (TrainmasterError, OSError, SQLAlchemyError) as error:  # it is asked again: idle stopping must not end by it
            _log.warning("whether there is work could not be seen: %s", error)
            busy_s = time.monotonic()
        if time.monotonic() - max(busy_s, desk.called_s) >= idle_s:
            _log.info("nothing to do for %.0f s: stopping", idle_s)
            await asyncio.to_thread(stop or _stop, desk.services.home)
            return


def _is_busy(desk: Runtime) -> bool:
    """Whether any job is not over, accepted ones included, or somebody follows a log."""
    return bool(desk.followers or any(desk.services.events.live_counts().values()) or desk.waiting.rows())


def _stop(home: Home) -> None:
    """Like a person, from outside: who ends the api cannot be a part of it."""
    code = "import sys; from pathlib import Path; from trainmaster import daemons; from trainmaster.home import Home; "
    command = [sys.executable, "-P", "-c", code + "daemons.stop(Home(Path(sys.argv[1])))", str(home.root)]
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")
