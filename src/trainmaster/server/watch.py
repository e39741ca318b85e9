"""api and control each bring the other back: a thread that sleeps until the other is gone."""

import logging
import os
import select
import threading

from trainmaster import daemons
from trainmaster.errors import TrainmasterError
from trainmaster.home import Home

log = logging.getLogger("trainmaster.watch")

_LOOK_S = 1.0
_BACKOFF_MAX_S = 30.0


def watch(home: Home, other: str) -> None:
    """Keep `other` alive, until the server is stopped, on a thread of its own that ends with the process."""
    threading.Thread(target=_keep, args=(home, other), name=f"watch-{other}", daemon=True).start()


def _keep(home: Home, other: str) -> None:
    backoff_s = 0.0
    resting = threading.Event()
    while True:
        _sleep_while_alive(home, other)
        try:
            revived = daemons.revive(home, other)
        except (TrainmasterError, OSError) as error:
            backoff_s = min(max(1.0, 2 * backoff_s), _BACKOFF_MAX_S)
            log.error("%s does not come back: %s; next try in %.0f s", other, error, backoff_s)
            resting.wait(backoff_s)
            continue
        backoff_s = 0.0
        if revived:
            log.warning("%s was gone and is back", other)
        else:
            resting.wait(_LOOK_S)  # being stopped, or somebody else was faster


def _sleep_while_alive(home: Home, other: str) -> None:
    """Return once `other` is gone."""
    while daemons.alive(home, other):
        pid = int((home.read_json(home.server_json) or {}).get("pids", {}).get(other, 0))
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, AttributeError):  # gone meanwhile; or a system without it
            threading.Event().wait(_LOOK_S)
            continue
        try:
            if daemons.alive(home, other):
                poll = select.poll()  # `select.select` refuses numbers over 1,024
                poll.register(descriptor, select.POLLIN)
                poll.poll()
        finally:
            os.close(descriptor)
