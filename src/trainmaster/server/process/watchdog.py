"""api and control restart each other: a thread sleeps until the other process is gone."""

import logging
import os
import select
import threading
import time

from trainmaster import daemons, live_processes, troubles
from trainmaster.errors import TrainmasterError
from trainmaster.home import Home

log = logging.getLogger("trainmaster.watch")

_LOOK_S = 1.0
_BACKOFF_MAX_S = 30.0
_YOUNG_S = 3.0
_UNWANTED_S = 5.0
_DEATHS_FREE = 4  # restarts without delay: the process may have been killed a few times


def watch(home: Home, other: str) -> None:
    """Restart `other` whenever it dies, until the server is stopped. Runs on a daemon thread."""
    threading.Thread(target=_watch_loop, args=(home, other), name=f"watch-{other}", daemon=True).start()


def _watch_loop(home: Home, other: str) -> None:
    backoff_s = 0.0
    deaths = 0  # consecutive deaths soon after a start
    resting = threading.Event()
    while True:
        try:
            began_s = time.monotonic()
            _sleep_while_alive(home, other)
            deaths = deaths + 1 if time.monotonic() - began_s < _YOUNG_S else 0
            resting.wait(restart_delay_s(deaths))
            revived = daemons.revive(home, other)
        except (TrainmasterError, OSError) as error:
            backoff_s = min(max(1.0, 2 * backoff_s), _BACKOFF_MAX_S)
            log.error("%s cannot be restarted: %s; next try in %.0f s", other, error, backoff_s)
            troubles.say(f"{other} is down", f"{other} cannot be restarted: {error}")
            resting.wait(backoff_s)
            continue
        backoff_s = 0.0
        troubles.clear(f"{other} is down")
        if revived:
            log.warning("%s had died and was restarted", other)
        else:
            # A stop is under way, or another process restarted it. Or there is no mirror, until `tm up --mlflow` adds one.
            resting.wait(_UNWANTED_S if other in live_processes.BESIDE else _LOOK_S)


def restart_delay_s(deaths: int) -> float:
    """Delay before the next restart of a process that died soon after its start `deaths` times, so that it does not spin."""
    return 0.0 if deaths < _DEATHS_FREE else min(2.0 ** min(deaths - _DEATHS_FREE, 16), _BACKOFF_MAX_S)


def _sleep_while_alive(home: Home, other: str) -> None:
    """Block until `other` is gone."""
    while live_processes.alive(home, other):
        pid = int(live_processes.recorded(home).get("pids", {}).get(other, 0))
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # gone meanwhile, or a system without pidfd
            threading.Event().wait(_LOOK_S)
            continue
        try:
            if live_processes.alive(home, other):
                poll = select.poll()  # `select.select` rejects descriptors above 1,023
                poll.register(descriptor, select.POLLIN)
                poll.poll()
        finally:
            os.close(descriptor)
