"""Copies what people read of an attempt to the server, for a node that shares no disk with it: logs, their times, records.

A thread sends what is new once a second. So the output of a node that is lost is there up to its last seconds. The server
replaces everything from an offset on, so a log that was cut here is cut there, and a piece that is sent twice is harmless.
"""

from __future__ import annotations

import http.client
import os
import stat
import sys
import threading
import time
import zlib
from urllib.parse import quote, urlsplit

from trainmaster.agent.transport.sync import connect, decoded, error_of
from trainmaster.wire.names import COPY_WHOLE_BYTES, EXIT, is_copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set, Tuple

    from trainmaster.wire.launch import Launch

_EVERY_S = 1.0
_AGAIN_MAX_S = 10.0  # between two tries of an unreachable server
_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 20  # of a log; a record is sent whole
_MARK_BYTES = 256  # before the offset, by which a log is known that was cut and has grown again
_PATH = "/agent/file"
_DROPPED = (404, 410)  # the server wants nothing more of this attempt
_REFUSED = (400, 413)  # nor of this file


class _FileRefused(Exception):
    """The server does not take this file."""


class FileCopies:
    """The copies of one attempt's files. `start` begins the thread; `finish` sends the rest."""

    def __init__(self, launch: Launch, directory: str) -> None:
        self._launch, self._directory = launch, directory
        self._sent: Dict[str, Tuple[int, int]] = {}  # name -> (offset, checksum of the bytes before it)
        self._left_out: Set[str] = set()
        self._connection: Optional[http.client.HTTPConnection] = None
        self._turns = threading.Lock()
        self._closing = threading.Event()
        self._unwanted = self._failing = False
        self.record = ""  # the name of the environment record, once there is one

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="copies", daemon=True).start()

    def finish(self, patience_s: float) -> bool:
        """Send all that is left, for so long; whether the server has everything. The exit record goes last."""
        self._closing.set()
        until_s = time.monotonic() + patience_s
        while not self._turn(ends=True):
            if time.monotonic() >= until_s or self._unwanted:
                return False
            time.sleep(min(_EVERY_S, max(0.0, until_s - time.monotonic())))
        return True

    def _run(self) -> None:
        pause_s = _EVERY_S
        while not self._closing.wait(pause_s) and not self._unwanted:
            pause_s = _EVERY_S if self._turn() else min(2 * pause_s, _AGAIN_MAX_S)

    def _turn(self, ends: bool = False) -> bool:
        """Send what is new; whether all of it arrived."""
        with self._turns:
            try:
                for name, path in self._files(ends):
                    self._send_unless_refused(name, path)
                self._failing = False
                return True
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not self._failing:  # once, because the agent's own words are copied, too
                    sys.stderr.write(f"its files cannot be copied to the server: {type(error).__name__}: {error}\n")
                self._failing = True
                self._drop()
                return False

    def _files(self, ends: bool) -> List[Tuple[str, str]]:
        """(name, path) of what is copied: a log before its times, the exit record only at the end, and last."""
        names = [name for name in sorted(os.listdir(self._directory)) if is_copied(name) and (ends or name != EXIT)]
        found = [(name, os.path.join(self._directory, name)) for name in sorted(names, key=lambda name: name == EXIT)]
        if self.record:
            record = f"{self.record}.json"
            found.insert(0, (record, os.path.join(self._launch["environment_store"], record)))
        return found

    def _send_unless_refused(self, name: str, path: str) -> None:
        """Send what is new of a file. One that the server refuses is left out from then on; the others go on."""
        if name not in self._left_out:
            try:
                self._send_new(name, path)
            except _FileRefused as refusal:
                self._left_out.add(name)
                sys.stderr.write(f"{name!a} is not copied to the server: {refusal}\n")

    def _send_new(self, name: str, path: str) -> None:
        """Raises: OSError, http.client.HTTPException, ValueError, _FileRefused."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            return
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return  # the program has put something else in its place
            size = os.fstat(descriptor).st_size
            most = _PIECE_BYTES if ".log" in name else COPY_WHOLE_BYTES + 1
            while not self._unwanted:
                at, mark = self._sent.get(name, (0, 0))
                known = min(_MARK_BYTES, at)
                data = os.pread(descriptor, known + most, at - known)
                if zlib.crc32(data[:known]) != mark:
                    del self._sent[name]  # it was cut: all of it again
                    continue
                if name in self._sent and (at >= size or len(data) == known):
                    return
                if len(data) - known > COPY_WHOLE_BYTES:
                    raise _FileRefused("it is too long")
                offset = self._send(name, at, data[known:])
                if offset != at + len(data) - known:  # the copy is shorter than it was
                    data = os.pread(descriptor, min(_MARK_BYTES, offset), max(0, offset - _MARK_BYTES))
                self._sent[name] = offset, zlib.crc32(data[-_MARK_BYTES:])
        finally:
            os.close(descriptor)

    def _send(self, name: str, at: int, piece: bytes) -> int:
        """Send a piece; returns where the next one begins, which the server says."""
        if self._connection is None:
            self._connection = connect(self._launch, _TIMEOUT_S)
        prefix = "" if self._launch["server_socket"] else urlsplit(self._launch["server_url"] or "").path.rstrip("/")
        headers = {"Authorization": f"Bearer {self._launch['credential']}", "X-Trainmaster-Key": self._launch["key"]}
        self._connection.request("PUT", f"{prefix}{_PATH}?name={quote(name)}&at={at}", piece, headers)
        response = self._connection.getresponse()
        data = response.read()
        if response.status == 200:
            return int(decoded(data)["size"])
        error = error_of(data)
        if error and response.status in _DROPPED:
            self._unwanted = True
            return at + len(piece)
        if error and response.status in _REFUSED:
            raise _FileRefused(str(error.get("message")))
        raise http.client.HTTPException(f"answered {response.status} {error.get('message', '')}".strip())

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

