"""Sends files to a remote store: several requests in parallel, with one memory block each.

A large file is sent in parts. If the store compares checksums, each part is sent with a checksum of the local bytes. The
store then rejects a part that was damaged on the way, and the part is sent again.
"""

from __future__ import annotations

import base64
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from trainmaster.agent.transport.remote_store import BLOCK_BYTES, Absent, Denied, Exists, Remote, named_by_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence

    from trainmaster.wire.launch import Launch


# Sending may fail by I/O, by an answer that is malformed, and on a machine without room for a thread.
FAILURES = (OSError, ValueError, LookupError, TypeError, RuntimeError)
_AT_ONCE = 8  # parallel requests of one agent, each with one memory block
_AHEAD = 8  # more requests that wait for a free thread, so that no thread is idle
_BATCH = 64  # files whose addresses are requested together
_FIRST, _SIGNED = 4, 16  # parts whose addresses are requested together: few at first, so that sending starts soon


class File(NamedTuple):
    """A file to send."""

    name: str  # in the store
    path: str
    size: int  # bytes
    later: str = ""  # its path after its directory has been renamed


class Sender:
    """One upload of files that belong together. `uploads` lists what was sent and the server still has to complete."""

    def __init__(self, launch: Launch) -> None:
        self.remote = Remote(launch)
        self._launch = launch
        self._begun: Dict[str, str] = {}
        self.uploads: Dict[str, Dict[str, Any]] = {}  # name -> {"upload", "etags", "crc32"} of files sent in parts

    def send(self, files: Sequence[File]) -> None:
        """Send all files that `uploads` does not list yet. Raises: Denied, Stale, Absent, Away, OSError."""
        left = [file for file in files if file.name not in self.uploads]
        with ThreadPoolExecutor(_AT_ONCE, "upload") as pool:
            window = _Window(pool)
            for at in range(0, len(left), _BATCH):
                try:
                    self._send(left[at : at + _BATCH], window)
                except BaseException:
                    self.remote.patience_s = 0.0  # requests that are being retried stop too
                    window.give_up()
                    raise

    def abort(self) -> None:
        """Abort uploads that have begun. The store's garbage collection finds those that cannot be aborted now."""
        hasty = Remote(self._launch, patience_s=0.0)
        for name, upload in self._begun.items():
            try:
                hasty.ask("abort", name=name, upload=upload)
            except OSError:
                return

    def _send(self, files: List[File], window: _Window) -> None:
        sizes = [{"name": file.name, "bytes": file.size} for file in files]
        answer = self.remote.ask("begin", files=sizes, crc32=True)
        told = [(file, answer["uploads"][index]) for index, file in enumerate(files)]
        self._begun.update({file.name: each["id"] for file, each in told if each.get("id")})
        for file, each in told:
            if not each.get("id"):
                window.submit(self._whole, file, each)
        for file, each in told:
            if each.get("id"):
                self._parts(file, each, window)
        window.wait()

    def _whole(self, file: File, told: Dict[str, Any]) -> None:
        first: List[Optional[str]] = [told["url"]]

        def address() -> Optional[str]:
            if first:
                return first.pop()
            again = self.remote.ask("begin", files=[{"name": file.name, "bytes": file.size}])["uploads"][0]
            return str(again["url"]) if again["url"] is not None else None

        body = Body(file, 0, file.size)
        try:
            self.remote.put(address, file.name, body)
        except Exists:
            self._compare(file.name, body)

    def compare(self, names: Sequence[str], files: Sequence[File]) -> None:
        """Compare files with what the store already had under these names.

        Raises: Denied, Stale, Away, OSError; Absent if it must be sent again.
        """
        for file in files:
            if file.name in names:
                self._compare(file.name, Body(file, 0, file.size))

    def _compare(self, name: str, body: Body) -> None:
        if self._is_stored(name, body):
            return
        if named_by_digest(name):
            raise Absent(f"{name} is damaged in the store")
        raise Denied(f"the store has other bytes under the name {name}, which were left as they are")

    def _is_stored(self, name: str, body: Body) -> bool:
        """Whether the blob of this name in the store has these bytes."""
        import hashlib  # noqa: PLC0415  # most uploads compare nothing

        stored, own = [hashlib.sha256()], hashlib.sha256()

        def begin() -> Callable[[bytes], None]:
            stored[0] = hashlib.sha256()
            return stored[0].update

        self.remote.get(lambda: self.remote.ask("get", names=[name])["urls"][name], name, begin)
        for block in body.blocks():
            own.update(block)
        return stored[0].digest() == own.digest()

    def _parts(self, file: File, told: Dict[str, Any], window: _Window) -> None:
        """Send the parts of one file. While some are being sent, the next are digested and signed."""
        upload, part_bytes, header = told["id"], told["part_bytes"], told.get("crc32_header") or ""
        etags: Dict[str, str] = {}
        sums: Dict[str, str] = {}

        def signed(some: List[int]) -> Dict[str, str]:
            crc32 = {str(number): sums[str(number)] for number in some} if header else {}
            answer = self.remote.ask("sign", name=file.name, upload=upload, numbers=some, crc32=crc32)
            addresses: Dict[str, str] = answer["urls"]
            return addresses

        def send(number: int, body: Body, first: List[str]) -> None:
            def address() -> str:
                return first.pop() if first else signed([number])[str(number)]

            headers = {header: sums[str(number)]} if header else {}
            etags[str(number)] = self.remote.put(address, file.name, body, headers)

        for some in _batches(-(-file.size // part_bytes)):
            bodies = {}
            for number in some:
                offset = (number - 1) * part_bytes
                bodies[number] = Body(file, offset, min(part_bytes, file.size - offset))
                if header:
                    sums[str(number)] = bodies[number].crc32()
            addresses = signed(some)
            for number in some:
                window.submit(send, number, bodies[number], [addresses[str(number)]])
        window.wait()
        self.uploads[file.name] = {"upload": upload, "etags": etags, "crc32": sums}


class Body:
    """A range of a file to send. Each try reads it again from its beginning."""

    def __init__(self, file: File, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size

    def __len__(self) -> int:
        return self._size

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the range. Raises: Absent, OSError."""
        with self._open() as reading:
            reading.seek(self._offset)
            left = self._size
            while left:
                data = reading.read(min(left, BLOCK_BYTES))
                if not data:
                    raise Absent(f"{self._file.path} is shorter than it was")
                yield data
                left -= len(data)

    def crc32(self) -> str:
        """Its checksum, in base64."""
        found = 0
        for data in self.blocks():
            found = zlib.crc32(data, found)
        return base64.b64encode(found.to_bytes(4, "big")).decode()

    def _open(self) -> BinaryIO:
        for path in (self._file.path, self._file.later):
            try:
                return open(path, "rb", buffering=0)
            except FileNotFoundError:
                continue
        raise Absent(f"{self._file.path} is gone")


class _Window:
    """Bounded submission to a thread pool. An error of a task is raised in the thread that submits or waits."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._left: deque[Future[None]] = deque()

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Submit the work; block while the window is full."""
        while len(self._left) >= _AT_ONCE + _AHEAD:
            self._left.popleft().result()
        self._left.append(self._pool.submit(work, *arguments))

    def wait(self) -> None:
        """Wait until all submitted work is done."""
        while self._left:
            self._left.popleft().result()

    def give_up(self) -> None:
        """Cancel the work that has not begun."""
        for future in self._left:
            future.cancel()


def _batches(count: int) -> Iterator[List[int]]:
    """The numbers of `count` parts, in order."""
    done = 0
    while done < count:
        end = min(count, done + (_SIGNED if done else _FIRST))
        yield list(range(done + 1, end + 1))
        done = end
