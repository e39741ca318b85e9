"""Everything up to the moment the ranks run. It is the agent's hot path, so only light modules are imported here."""

from __future__ import annotations

import os
import time

from trainmaster.agent import layout, meeting, ranks, restore
from trainmaster.agent.wake import Stopped
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.collect import Collector
    from trainmaster.agent.sync import Sync
    from trainmaster.agent.wake import Wake
    from trainmaster.wire.launch import Launch


class Start:
    """One agent's start. Afterwards either `ranks` run, or `error` says why not, or neither: it was stopped before."""

    def __init__(self, directory: str, launch: Launch, wake: Wake) -> None:
        self.directory = directory
        self.launch = launch
        self.wake = wake
        self.began_s = time.monotonic()
        self.ranks_began_s: Optional[float] = None
        self.ranks: list[ranks.Rank] = []
        self.restored: Optional[restore.Restored] = None
        self.collector: Optional[Collector] = None
        self.meeting: Optional[tuple[str, int]] = None
        self.sync: Optional[Sync] = None  # made early only by those who wait for node 0
        self.error: Optional[str] = None
        self._claim: Optional[meeting.Claim] = None

    def make(self) -> None:
        """Lay out, restore, meet, start; what goes wrong is put into `error`."""
        doing = "lay out the code copy"
        try:
            with self.wake.interruptible():
                self._check_stopped()
                layout.lay_out(self.launch)
                doing = "put the last good checkpoint back"
                self.restored = restore.restore(self.launch)
                doing = "look for checkpoints"
                self._prime()
                doing = "meet the other nodes"
                self.meeting = self._meet()
                self._check_stopped()
            doing = "start the ranks"
            self._flags()
            self.ranks_began_s = time.monotonic()
            self.ranks = ranks.start_all(self.launch, self.directory, self.restored, self.meeting)
        except Stopped:
            return
        except (ranks.LaunchError, meeting.NoPortError) as error:
            self.error = str(error)
        except (OSError, ValueError, KeyError) as error:
            self.error = f"could not {doing} on this node: {_text(error)}; {_advice(error)}"

    @property
    def flags_path(self) -> str:
        """The file the SDK polls."""
        return os.path.join(self.directory, names.SDK_FLAGS)

    def release(self) -> None:
        """Give the port back."""
        if self._claim is not None:
            self._claim.release()

    def _prime(self) -> None:
        if self.launch["checkpoint_path"]:
            from trainmaster.agent.collect import Collector  # noqa: PLC0415 - only for a job that names its checkpoints

            self.collector = Collector(self.launch)
            self.collector.prime()

    def _meet(self) -> tuple[str, int]:
        """Where the ranks find each other: chosen here, or by node 0."""
        if self.launch["node_index"] > 0:
            from trainmaster.agent.gang import wait_for_meeting  # noqa: PLC0415 - JSON, HTTP and threads: gangs alone

            self.sync, place = wait_for_meeting(self)
            return place
        self._claim = meeting.claim()
        alone = self.launch["nodes"] == 1 or self.launch["address_shared"]
        return (meeting.LOOPBACK if alone else self.launch["address"]), self._claim.port

    def _flags(self) -> None:
        descriptor = os.open(self.flags_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, b"0\0")
        os.close(descriptor)

    def _check_stopped(self) -> None:
        if os.path.exists(os.path.join(self.directory, names.STOP)):
            self.wake.terminated = True
        self.wake.raise_if_stopped()


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, (OSError, ValueError)) else repr(error)


def _advice(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (28, 122):  # ENOSPC, EDQUOT
        return "free some disk space there and submit again"
    if number in (13, 1):
        return "give the user that runs this server the right to it"
    if number == 2:
        return "check that the path is there and its file system is mounted"
    return "see the agent's log"
