"""Uploads large files of a checkpoint while they are still being digested on this node.

Such an upload does not commit anything. It is completed together with the manifest when everything is staged, or aborted.
"""

from __future__ import annotations

import os
import queue

from trainmaster.agent.files.stage import Check
from trainmaster.agent.transport.multipart import FAILURES, File, Sender
from trainmaster.agent.transport.remote_store import Absent
from trainmaster.wire.names import blob_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from trainmaster.wire.launch import Launch

_BYTES = 32 * 1024 * 1024  # a smaller file is digested before its upload could begin


class EarlyUpload(Check):
    """The early upload of one staging: the staging thread announces files, the upload thread sends them."""

    def __init__(self, launch: Launch, identifier: str, place: str, prefix: str) -> None:
        self.id = identifier
        self._launch = launch
        self.sender = Sender(launch)
        self._place, self._prefix = place, prefix
        self._coming: queue.SimpleQueue[Optional[File]] = queue.SimpleQueue()
        self.fields: Optional[Dict[str, Any]] = None  # of the report, set when staging is finished

    def placed(self, stored: str, path: str, size: int) -> None:
        """Queue the file for upload if it is large enough. `stored`: its path in the part, which is renamed after staging."""
        if size >= _BYTES:
            self._coming.put(File(f"{self._prefix}/{blob_name(stored)}", path, size, os.path.join(self._place, stored)))

    def end(self, fields: Optional[Dict[str, Any]]) -> None:
        """Staging has ended. None: it failed, and the rest of the upload is aborted."""
        self.fields = fields
        if fields is None:
            self.sender.remote.patience_s = 0.0
        self._coming.put(None)

    def send(self) -> Optional[Exception]:
        """Send files until staging ends. Returns the permanent error, if there was one."""
        wrong: Optional[Exception] = None
        while True:
            file = self._coming.get()
            if file is None:
                break
            try:
                if wrong is None:
                    self.sender.send([file])
            except FAILURES as error:
                wrong = error
        if wrong is not None or self.fields is None:
            self.sender.abort()
            self.sender = Sender(self._launch)
        return wrong if not isinstance(wrong, Absent) else None  # if the store lost an upload, everything is sent again
