"""Follows a file that a program writes: reads what is new, and splits it into lines."""

from __future__ import annotations

import os
from collections import deque

from trainmaster.wire.exceptions import TAIL_LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_SHOWN_MAX = 1000  # bytes shown of each of the last lines
CHUNK = 32768  # bytes of one read; our own parser of metrics needs at most some 30 ms for it


class Lines:
    """Splits a byte stream into lines and keeps the last ones. A carriage return ends a line that the next one overwrites.

    `longest`: bytes; a longer line is split.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self._overwritten: Optional[bytes] = None
        self._last: deque[bytes] = deque(maxlen=TAIL_LINES)

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes."""
        data = self._rest + data
        if b"\r" in data or self._overwritten is not None:
            lines = self._with_returns(data)
        else:
            lines = data.split(b"\n")
            self._rest = lines.pop()
            self._last.extend(line[:_SHOWN_MAX] for line in lines[-TAIL_LINES:])
        while len(self._rest) > self._longest:
            piece, self._rest = self._rest[: self._longest], self._rest[self._longest :]
            lines.append(piece)
        return lines

    def _with_returns(self, data: bytes) -> list[bytes]:
        lines = []
        self._rest = b""
        for piece in data.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if piece[-1:] == b"\n":
                # "text\r\n" may arrive in two pieces: then the empty piece ends the line before it.
                shown = line if line or self._overwritten is None else self._overwritten
                self._last.append(shown[:_SHOWN_MAX])
                self._overwritten = None
            elif piece[-1:] == b"\r":
                self._overwritten = line or self._overwritten
            else:
                self._rest = piece
                continue
            lines.append(line)
        return lines

    def finish(self) -> list[bytes]:
        """End of the stream: the last line if it has no line end."""
        rest, self._rest = self._rest, b""
        shown = rest or self._overwritten
        if shown:
            self._last.append(shown[:_SHOWN_MAX])
        self._overwritten = None
        return [rest] if rest else []

    def last(self) -> list[str]:
        """The last lines as text; more than are shown, because the exception may be far from the end."""
        return [line.decode(errors="replace") for line in self._last]


class Tail:
    """Reads a growing file from the last position. Cutting the file's beginning loses nothing that was read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.offset = 0
        self.skipped_bytes = 0
        self.truncated = False  # by another process

    def waiting(self) -> int:
        """Number of unread bytes."""
        size = os.fstat(self.descriptor).st_size
        if size < self.offset:
            self.offset, self.truncated = 0, True
        return size - self.offset

    def read(self) -> bytes:
        """Read at most one chunk."""
        data = os.pread(self.descriptor, CHUNK, self.offset)
        self.offset += len(data)
        return data

    def skip(self, keep: int) -> None:
        """Skip all unread bytes except the last `keep`."""
        behind = self.waiting()
        if behind > keep:
            self.offset += behind - keep
            self.skipped_bytes += behind - keep

    @property
    def lost(self) -> str:
        """Why its path no longer leads to it: "deleted", "replaced", or "" if it does. Raises: OSError."""
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return "deleted"
        return "" if os.path.samestat(there, os.fstat(self.descriptor)) else "replaced"

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)
