"""Files on their way into a store that is no directory here: several requests at a time, a block of memory for each.

A large file goes in parts. Where the store compares checksums each part comes with its own, taken from what lies here, so
that what was damaged on the way is refused and sent again.
"""

from __future__ import annotations

import base64
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from trainmaster.agent.transport.remote_store import BLOCK_BYTES, Absent, Remote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence

    from trainmaster.wire.launch import Launch


_AT_ONCE = 8  # requests of one agent, each with a block of memory
_AHEAD = 8  # more that wait for a free thread, so that none is ever idle
_BATCH = 64  # files for which addresses are asked at once
_FIRST, _SIGNED = 4, 16  # parts likewise: the first few at once, so that something is on its way


class File(NamedTuple):
    """What is to be sent."""

    name: str  # in the store
    path: str
    size: int  # bytes
    later: str = ""  # where it is once the directory it lies in has been renamed


class Sender:
    """One upload of files that belong together: `uploads` tells what is sent and waits to be completed by the server."""

    def __init__(self, launch: Launch) -> None:
        self.remote = Remote(launch)
        self._launch = launch
        self._begun: Dict[str, str] = {}
        self.uploads: Dict[str, Dict[str, Any]] = {}  # name -> {"upload", "etags", "crc32"} of those that have parts

    def send(self, files: Sequence[File]) -> None:
        """Send all but what `uploads` has already. Raises: Denied, Stale, Absent, Away, OSError."""
        left = [file for file in files if file.name not in self.uploads]
        with ThreadPoolExecutor(_AT_ONCE, "upload") as pool:
            window = _Window(pool)
            for at in range(0, len(left), _BATCH):
                try:
                    self._send(left[at : at + _BATCH], window)
                except BaseException:
                    self.remote.patience_s = 0.0  # whoever still tries gives up too
                    window.give_up()
                    raise

    def abort(self) -> None:
        """Give parts back; what cannot be now is found by the store's garbage collection."""
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

        self.remote.put(address, file.name, Body(file, 0, file.size))

    def _parts(self, file: File, told: Dict[str, Any], window: _Window) -> None:
        """Send the parts of one file; while some are on their way the next are digested and signed."""
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
    """A stretch of a file to be sent; read again from its beginning at each try."""

    def __init__(self, file: File, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size

    def __len__(self) -> int:
        return self._size

    def blocks(self) -> Iterator[bytes]:
        """Its bytes. Raises: Absent, OSError."""
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
    """Work given to a pool, so much of it at a time and no more; what goes wrong is raised to whoever gives it."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._left: deque[Future[None]] = deque()

    def submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Have it done, once there is room."""
        while len(self._left) >= _AT_ONCE + _AHEAD:
            self._left.popleft().result()
        self._left.append(self._pool.submit(work, *arguments))

    def wait(self) -> None:
        """Until all of it is done."""
        while self._left:
            self._left.popleft().result()

    def give_up(self) -> None:
        """Begin nothing more."""
        for future in self._left:
            future.cancel()


def _batches(count: int) -> Iterator[List[int]]:
    """The numbers of `count` parts, in order."""
    done = 0
    while done < count:
        end = min(count, done + (_SIGNED if done else _FIRST))
        yield list(range(done + 1, end + 1))
        done = end
