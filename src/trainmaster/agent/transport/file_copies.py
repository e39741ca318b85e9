"""Copies what people read of an attempt to the server, for a node that shares no disk with it: logs, their times, records.

A thread sends what is new once a second. So the output of a node that is lost is there up to its last seconds. The server
replaces everything from an offset on, so a log that was cut here is cut there, and a piece that is sent twice is harmless.
"""

from __future__ import annotations

import http.client
import os
import stat
import threading
import time
from urllib.parse import quote, urlsplit

from trainmaster.agent.transport.sync import connect, decoded, error_of
from trainmaster.wire.names import COPY_WHOLE_BYTES, EXIT, is_copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from trainmaster.wire.launch import Launch

_EVERY_S = 1.0
_AGAIN_MAX_S = 10.0  # between two tries of an unreachable server
_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 20  # of a log; a record is sent whole
_END_BYTES = 256  # before the offset, by which a log is known that was cut and has grown again
_PATH = "/agent/file"
_UNWANTED = 410  # nothing more of this attempt
_REFUSED = (400, 413)  # this file


class FileCopies:
    """The copies of one attempt's files. `start` begins the thread; `finish` sends the rest."""

    def __init__(self, launch: Launch, directory: str) -> None:
        self._launch, self._directory = launch, directory
        self._sent: Dict[str, Tuple[int, bytes]] = {}  # name -> (offset, the bytes before it)
        self._refused: Dict[str, str] = {}  # files that are not copied -> why
        self._connection: Optional[http.client.HTTPConnection] = None
        self._turns = threading.Lock()
        self._closing = threading.Event()
        self._unwanted = False
        self.trouble = ""  # of the last turn
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
                self.trouble = "" if self._unwanted else self.trouble.replace("it is tried again", "its end is missing there")
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
            unread: List[str] = []
            try:
                for name, path in self._files(ends):
                    try:
                        self._send_new(name, path)
                    except PermissionError as error:
                        unread.append(f"{name[:100]}: {error}")
                refused = [f"{name[:100]}: {why}" for name, why in self._refused.items()]
                told = [*refused, *unread][:1]
                self.trouble = f"not copied to the server: {told[0]}" if told else ""
                return True
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.trouble = f"its output cannot be copied to the server: {type(error).__name__}: {error}; it is tried again"
                self._drop()
                return False

    def _files(self, ends: bool) -> List[Tuple[str, str]]:
        """(name, path) of what is copied: a log before its times, the exit record only at the end, and last."""
        names = [name for name in sorted(os.listdir(self._directory)) if is_copied(name) and (ends or name != EXIT)]
        found = [(name, os.path.join(self._directory, name)) for name in sorted(names, key=lambda name: name == EXIT)]
        if self.record:
            record = f"{self.record}.json"
            found.insert(0, (record, os.path.join(self._launch["environment_store"], record)))
        return [one for one in found if one[0] not in self._refused]

    def _send_new(self, name: str, path: str) -> None:
        """Raises: OSError, http.client.HTTPException, ValueError."""
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return None  # the program has put something else in its place
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            offset, end = self._sent.get(name, (0, b""))
            size, is_log = os.fstat(descriptor).st_size, ".log" in name
            if not is_log and size > COPY_WHOLE_BYTES:
                return self._pass_over(name, f"it has {size} bytes")
            while not self._unwanted:
                most = _PIECE_BYTES if is_log else COPY_WHOLE_BYTES
                data = os.pread(descriptor, len(end) + min(most, max(0, size - offset)), offset - len(end))
                if not data.startswith(end):  # it was cut
                    offset, end, size = 0, b"", os.fstat(descriptor).st_size
                    continue
                piece = data[len(end) :]
                if not piece and name in self._sent and offset == size:
                    break
                there = self._send(name, offset, piece)
                if there is None:
                    return None
                # Of what was sent, because the file may be cut meanwhile.
                end = (end + piece)[-_END_BYTES:] if there == offset + len(piece) else b""
                offset = there
                self._sent[name] = offset, end
                if not piece:
                    break
            return None
        finally:
            os.close(descriptor)

    def _pass_over(self, name: str, why: str) -> None:
        """This file is not copied. That it is not is no reason to keep the others."""
        self._refused[name] = why

    def _send(self, name: str, at: int, piece: bytes) -> Optional[int]:
        """Send a piece; returns where the next one begins, which the server says. None if it refuses the file."""
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
        if error and response.status == _UNWANTED:
            self._unwanted = True
            return None
        if error and response.status in _REFUSED:
            self._pass_over(name, str(error.get("message")))
            return None
        raise http.client.HTTPException(f"answered {response.status} {error.get('message', '')}".strip())

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
