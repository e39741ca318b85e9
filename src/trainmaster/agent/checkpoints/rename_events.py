"""Detects with inotify that a file was renamed into its place; without inotify there is no such evidence.

A name counts as moved from the event that it was moved there until the next event that it was created or written. A lost
event loses evidence, but never creates any.
"""

import ctypes
import os
import struct
import sys
from typing import Dict, Set

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_MOVE_SELF, _OVERFLOW, _IGNORED = 0x800, 0x4000, 0x8000
_ONLY_DIRECTORIES = 0x01000000
_WATCHED = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _MOVE_SELF
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the following name


class Renames:
    """Watches directories. Call `drain` before `moved`. Costs nothing between calls."""

    def __init__(self) -> None:
        self._places: Dict[int, str] = {}
        self._moved: Set[str] = set()
        self._from = (0, "")  # cookie and path of the last one that was moved away: a move within what is watched is two events
        self.shortened: Dict[str, str] = {}  # for what was renamed to its name without an end: that end
        self._descriptor = -1  # also where the system has no more of them
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        self.close()  # a user has only 128 of them on many systems: then nothing is seen renamed

    def watch(self, directory: str) -> None:
        """Start to record renames into `directory`; does nothing if it cannot be watched."""
        if self._descriptor < 0 or directory in self._places.values():
            return
        watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _WATCHED | _ONLY_DIRECTORIES)
        if watch >= 0:
            self._places[watch] = directory

    def drain(self) -> None:
        """Process the events since the last call."""
        while self._descriptor >= 0:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # BlockingIOError: nothing more
                return
            at = 0
            while at < len(data):
                watch, mask, cookie, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                self._take(watch, mask, cookie, data[at - length : at].rstrip(b"\0"))

    def _take(self, watch: int, mask: int, cookie: int, name: bytes) -> None:
        if mask & _OVERFLOW:
            self._moved.clear()
            return
        directory = self._places.get(watch)
        if directory is None:
            return
        if mask & (_IGNORED | _MOVE_SELF):  # removed or moved: its events no longer belong to this path
            del self._places[watch]
            if mask & _MOVE_SELF:
                self._libc.inotify_rm_watch(self._descriptor, watch)
            self._moved = {path for path in self._moved if not path.startswith(directory + "/")}
            return
        path = os.path.join(directory, os.fsdecode(name))
        if mask & _MOVED_TO:
            self._moved.add(path)
            before = self._from[1] if self._from[0] == cookie else ""
            if before.startswith(path):
                self.shortened[path] = before[len(path) :]
        else:
            self._moved.discard(path)
        if mask & _MOVED_FROM:
            self._from = (cookie, path)

    def moved(self, path: str) -> bool:
        """Whether the file at `path` was renamed there and not written since."""
        return path in self._moved

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
