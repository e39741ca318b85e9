"""api and control each bring the other back: a thread that sleeps until the other is gone."""

import logging
import os
import select
import threading
import time

from trainmaster import daemons, presence, troubles
from trainmaster.errors import TrainmasterError
from trainmaster.home import Home

log = logging.getLogger("trainmaster.watch")

_LOOK_S = 1.0
_BACKOFF_MAX_S = 30.0
_YOUNG_S = 3.0
_UNWANTED_S = 5.0
_DEATHS_FREE = 4  # it may have been killed a few times


def watch(home: Home, other: str) -> None:
    """Keep `other` alive, until the server is stopped, on a thread of its own that ends with the process."""
    threading.Thread(target=_keep, args=(home, other), name=f"watch-{other}", daemon=True).start()


def _keep(home: Home, other: str) -> None:
    backoff_s = 0.0
    deaths = 0  # in a row, of one that had hardly come up
    resting = threading.Event()
    while True:
        try:
            began_s = time.monotonic()
            _sleep_while_alive(home, other)
            deaths = deaths + 1 if time.monotonic() - began_s < _YOUNG_S else 0
            resting.wait(rest_s(deaths))
            revived = daemons.revive(home, other)
        except (TrainmasterError, OSError) as error:
            backoff_s = min(max(1.0, 2 * backoff_s), _BACKOFF_MAX_S)
            log.error("%s does not come back: %s; next try in %.0f s", other, error, backoff_s)
            troubles.say(f"{other} is down", f"{other} does not come back: {error}")
            resting.wait(backoff_s)
            continue
        backoff_s = 0.0
        troubles.clear(f"{other} is down")
        if revived:
            log.warning("%s was gone and is back", other)
        else:
            # Being stopped, or somebody else was faster; or nothing is mirrored, which a later `tm up --mlflow` may change.
            resting.wait(_UNWANTED_S if other in presence.BESIDE else _LOOK_S)


def rest_s(deaths: int) -> float:
    """How long to wait before one that died young so many times is started again: it must not eat the machine."""
    return 0.0 if deaths < _DEATHS_FREE else min(2.0 ** min(deaths - _DEATHS_FREE, 16), _BACKOFF_MAX_S)


def _sleep_while_alive(home: Home, other: str) -> None:
    """Return once `other` is gone."""
    while presence.alive(home, other):
        pid = int(presence.recorded(home).get("pids", {}).get(other, 0))
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # gone meanwhile; or a system without it
            threading.Event().wait(_LOOK_S)
            continue
        try:
            if presence.alive(home, other):
                poll = select.poll()  # `select.select` refuses numbers over 1,024
                poll.register(descriptor, select.POLLIN)
                poll.poll()
        finally:
            os.close(descriptor)
