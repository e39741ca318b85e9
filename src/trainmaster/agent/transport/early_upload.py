"""Large files of a checkpoint that go to the store while they are still digested here.

Nothing counts by that: their uploads are completed with the manifest, once all of it is staged, or given up.
"""

from __future__ import annotations

import os
import queue

from trainmaster.agent.files.stage import Check
from trainmaster.agent.transport.multipart import File, Sender
from trainmaster.agent.transport.remote_store import Absent
from trainmaster.wire.names import blob_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from trainmaster.wire.launch import Launch

_BYTES = 32 * 1024 * 1024  # what is smaller is digested before an upload has begun


class Ahead(Check):
    """One staging: the thread that stages tells of files, the one that uploads takes them."""

    def __init__(self, launch: Launch, identifier: str, place: str, prefix: str) -> None:
        self.id = identifier
        self._launch = launch
        self.sender = Sender(launch)
        self._place, self._prefix = place, prefix
        self._coming: queue.SimpleQueue[Optional[File]] = queue.SimpleQueue()
        self.fields: Optional[Dict[str, Any]] = None  # what is told of it, once it is staged

    def placed(self, stored: str, path: str, size: int) -> None:
        """Send it, if it is worth it. `stored`: below the part, which is renamed once it is staged."""
        if size >= _BYTES:
            self._coming.put(File(f"{self._prefix}/{blob_name(stored)}", path, size, os.path.join(self._place, stored)))

    def end(self, fields: Optional[Dict[str, Any]]) -> None:
        """It is staged; None: it is not, and nothing of it is to be sent any more."""
        self.fields = fields
        if fields is None:
            self.sender.remote.patience_s = 0.0
        self._coming.put(None)

    def send(self) -> Optional[Exception]:
        """Send what comes until it is staged, or not; what went wrong for good."""
        wrong: Optional[Exception] = None
        while True:
            file = self._coming.get()
            if file is None:
                break
            try:
                if wrong is None:
                    self.sender.send([file])
            except (OSError, ValueError, KeyError) as error:
                wrong = error
        if wrong is not None or self.fields is None:
            self.sender.abort()
            self.sender = Sender(self._launch)
        return wrong if not isinstance(wrong, Absent) else None  # of what the store lost all is sent again
