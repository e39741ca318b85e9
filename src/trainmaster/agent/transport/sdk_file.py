"""Reads the file into which the SDK of a rank writes its messages."""

from __future__ import annotations

import json
import os

from trainmaster.agent.files.following import Tail
from trainmaster.agent.processes import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE_MAX = 4 * 1024 * 1024  # bytes; a longer line is not a valid message
_PUNCH = 16 * 1024 * 1024  # bytes


class SdkFile:
    """The messages of one rank."""

    def __init__(self, path: str) -> None:
        self._name = os.path.basename(path)
        self._tail = Tail(path)
        self._rest = b""
        self._punched = 0
        self.written_s = 0.0  # when the messages read last were written, at the latest; in seconds since the epoch
        self.skipped = False  # whether a message that was too long has just been skipped

    def waiting(self) -> int:
        """Number of unread bytes. Raises: OSError, as `read`."""
        return self._tail.waiting()

    def read(self) -> list[dict[str, Any]]:
        """The messages that the next chunk completes."""
        data = self._tail.read()
        self.written_s = os.fstat(self._tail.descriptor).st_mtime
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        self.skipped = len(self._rest) > LINE_MAX
        if self.skipped:
            self._rest = b"\0"  # the rest of this line is not a valid message either
        return [message for message in map(_message, lines) if message is not None]

    def free_what_was_read(self) -> None:
        """Give the disk space of messages back, if it is much: the file of points has what earlier calls read."""
        if self.position - self._punched > _PUNCH and libc.punch_hole(self._tail.descriptor, self.position):
            self._punched = self.position

    @property
    def position(self) -> int:
        """Number of bytes read."""
        return self._tail.offset

    @property
    def processed(self) -> tuple[str, int]:
        """Its name, and the number of processed bytes (complete lines)."""
        return self._name, self._tail.offset - len(self._rest)

    @property
    def lost(self) -> str:
        """Why its path no longer leads to it; see `Tail.lost`."""
        return self._tail.lost

    def close(self) -> None:
        """Close the file."""
        self._tail.close()


def _message(line: bytes) -> dict[str, Any] | None:
    """None if it was torn by a crash of the writer."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
