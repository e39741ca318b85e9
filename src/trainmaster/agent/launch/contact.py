"""The contact of a start with the outside: orders to stop, and reports of what takes long."""

from __future__ import annotations

import os
import time

from trainmaster.agent.processes.wakeup import Stopped
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.launch.attempt_directory import AttemptDirectory
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.agent.transport.sync import Sync
    from trainmaster.wire.launch import Launch

_SLOW_S = 5.0  # a rank that has not called exec after so long is reported


class Contact:
    """What a start hears and reports. The connection to the server is created only if some step needs it."""

    def __init__(self, launch: Launch, directory: AttemptDirectory, wake: Wake) -> None:
        self._launch = launch
        self._directory = directory
        self._wake = wake
        self._sync: Optional[Sync] = None
        self._slow: set[str] = set()  # labels of children that were reported as slow

    def sync(self) -> Sync:
        """The connection to the server, created by the first call."""
        if self._sync is None:
            from trainmaster.agent.transport.outbox import Outbox  # noqa: PLC0415 - JSON, HTTP, threads: few starts need them
            from trainmaster.agent.transport.sync import Sync  # noqa: PLC0415 - as above

            outbox = Outbox(self._directory.file(names.SPOOL), self._launch["points"])
            self._sync = Sync(self._launch, outbox, self._wake)
        return self._sync

    def report_preparing(self, doing: str) -> None:
        """Report what the start does now, because it may take long."""
        sync = self.sync()
        sync.outbox.report("preparing", doing=doing)
        sync.start_sender()
        sync.start_poller()

    def check_stopped(self) -> None:
        """Raises: wake.Stopped, if there is a tombstone or a signal."""
        if os.path.exists(self._directory.file(names.STOP)):
            self._wake.terminated = True
        self._wake.raise_if_stopped()

    def check_everything(self) -> None:
        """As `check_stopped`, and orders of the server too. Orders other than stop stay queued. Raises: wake.Stopped."""
        self.check_stopped()
        if self._sync is not None and any(order.get("order") == "stop" for order in list(self._sync.answers.orders)):
            raise Stopped

    def wait_for(self, label: str, since_s: float) -> None:
        """A child has not called exec since then (monotonic): report it after a while. Raises: wake.Stopped."""
        self.check_everything()
        if time.monotonic() > since_s + _SLOW_S and label not in self._slow:
            self._slow.add(label)
            where = f"the command's file, the work directory {self._launch['work']} or its cgroup does not answer"
            self.report_preparing(f"{label} could not begin its command yet: {where}")
