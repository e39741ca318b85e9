"""Rendezvous of a gang: the other nodes wait until the server sends them the address of node 0."""

from __future__ import annotations

import os

from trainmaster.agent.processes.wakeup import Stopped
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.agent.transport.sync import Sync

_LOOK_S = 0.5


def wait_for_rendezvous(sync: Sync, wake: Wake, directory: str) -> tuple[str, int]:
    """(address, port) of node 0. Waits without a limit: the server stops the attempt if needed. `directory`: the attempt's.

    Raises: wake.Stopped; ValueError if no server is configured.
    """
    if not sync.enabled:
        raise ValueError("a gang's nodes meet through the server, and none is given")
    sync.start_poller()
    while True:
        place = None
        while sync.answers.orders:
            order = sync.answers.orders.popleft()
            if order.get("order") == "stop":
                raise Stopped
            if order.get("order") == "rendezvous":
                place = (str(order["address"]), int(order["port"]))
        if os.path.exists(os.path.join(directory, names.STOP)):
            raise Stopped
        if place is not None:
            return place
        wake.wait(_LOOK_S)
