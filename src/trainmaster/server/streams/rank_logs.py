"""Reads rank logs from files, and keeps the reader's position in an opaque cursor.

Logs may contain any bytes, and may be truncated while they are read. The result is always valid text.
"""

import base64
import codecs
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trainmaster.errors import ConflictError, UsageError
from trainmaster.home import Home, open_regular
from trainmaster.server.streams.log_times import Lines, LogTimes

CHUNK_MAX_BYTES = 256 * 1024  # per file and response, so that no rank starves the others
ANSWER_MAX_BYTES = 1024 * 1024

_FILE = re.compile(r"(?:rank(?P<rank>\d+)|role-(?P<role>[\w.-]+))\.log\Z")
_NODE = re.compile(r"n(\d+)\Z")
_CURSOR_MAX_BYTES = 1024 * 1024
_OFFSET_MAX = 2**62
_SETTLED_S = 0.2  # an unterminated line is returned once its file was not written for so long
_TAIL_BLOCK_BYTES = 64 * 1024
_MARK_BYTES = 256
_TRIES, _AGAIN_S = 5, 0.02  # while the agent replaces the times of a log that it has cut
_CUT_NOTICE = b"\n[trainmaster: this log reached its limit"  # written by the agent
_CUT_KEPT_MAX_BYTES = 1024 * 1024 + 4096  # the notice is within so many bytes of the start


class RankFile(NamedTuple):
    """One log file of a rank or a role. Sorts by attempt, then rank; roles come after the ranks."""

    attempt: int
    beside: bool  # whether it is a role's
    rank: int  # -1 for a role
    node_index: int
    path: str
    role: str | None = None

    @property
    def name(self) -> str:
        """The file's name in a cursor."""
        return f"{self.attempt}/{self.node_index}/{self.rank if self.role is None else self.role}"


class Chunk(NamedTuple):
    """A piece of output of a rank or a role (then `rank` is -1). `times`: of its lines in order, if asked for."""

    attempt: int
    rank: int
    role: str | None
    text: str
    times: list[Lines] | None = None

    def view(self) -> dict[str, Any]:
        """As JSON."""
        fields = self._asdict()
        if self.times is None:
            del fields["times"]
        return fields


class LogSelection(NamedTuple):
    """Selects logs by attempt, ranks and role; None selects all."""

    attempt: int | None = None
    ranks: frozenset[int] | None = None
    role: str | None = None


@dataclass(slots=True)
class Cursor:
    """A reader's position: byte offsets per file. Attempts below `first` are done.

    `marks` are checksums of the bytes before each offset. They detect a log that was truncated and has grown again since.
    """

    first: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """Encode as opaque text that is safe in a URL."""
        plain = json.dumps([self.first, self.offsets, self.marks], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(zlib.compress(plain, 1)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """Raises: UsageError if the text is not a valid cursor."""
        if not text:
            return cls()
        try:
            packed = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
            unpacker = zlib.decompressobj()
            first, offsets, *marks = json.loads(unpacker.decompress(packed, _CURSOR_MAX_BYTES))
            if not unpacker.eof:
                raise ValueError("it is incomplete")
            numbers = [{str(name): _number(value) for name, value in given.items()} for given in (offsets, *marks[:1])]
            return cls(_number(first), *numbers)
        except (ValueError, TypeError, AttributeError, RecursionError, zlib.error) as error:
            raise UsageError("after is not a cursor of this server", "use the `cursor` of the last answer, or none") from error


def _number(value: object) -> int:
    """`value` as a file offset. Raises: ValueError."""
    if isinstance(value, int) and 0 <= value < _OFFSET_MAX:
        return value
    raise ValueError("it is not an offset")


def rank_files(home: Home, job: str, first: int, which: LogSelection = LogSelection()) -> list[RankFile]:  # noqa: B008  a constant
    """The existing logs of attempts from `first` on, in reading order."""
    root = home.attempt(job, 0, 0).parent.parent
    found = []
    for number in _numbers(root):
        if number < first or which.attempt not in (None, number):
            continue
        for node_index, directory in _nodes(root / str(number)):
            for entry in _entries(directory):
                match = _FILE.match(entry)
                if match is None or which.role not in (None, match["role"]):
                    continue
                rank = int(match["rank"]) if match["role"] is None else -1
                if which.ranks is None or rank in which.ranks:
                    path = str(directory / entry)
                    found.append(RankFile(number, match["role"] is not None, rank, node_index, path, match["role"]))
    return sorted(found)


def read_new(
    files: list[RankFile], cursor: Cursor, live: int | None, follow: bool = False, times: bool = False
) -> list[Chunk]:
    """New output, up to the size limits; moves `cursor`. `live`: the attempt that still writes, if any.

    Each file is read to its end before the next one. With `follow`, a piece of each file is read instead. With `times`,
    the times of the lines are read too.
    """
    chunks, left = [], ANSWER_MAX_BYTES
    for file in files:
        limit = min(left, CHUNK_MAX_BYTES) if follow else left
        place = cursor.offsets.get(file.name, 0), cursor.marks.get(file.name)
        final = live is None or file.attempt < live
        read = _read_with_times(file, place, limit, final) if times else _read(file, place, limit, final)
        cursor.offsets[file.name] = read.offset
        if read.mark is not None:
            cursor.marks[file.name] = read.mark
        left -= len(read.data)
        if read.text:
            chunks.append(Chunk(file.attempt, file.rank, file.role, read.text, read.times))
        if left <= 0 or (read.text and not follow and limit - len(read.data) < 4):  # this file may have more
            break
    return chunks


def pass_over(files: list[RankFile], cursor: Cursor, live: int) -> None:
    """Skip attempts before `live` once they were read completely."""
    past = [file for file in files if file.attempt < live]
    if past and at_end(past, cursor):
        cursor.first = live
        for file in past:
            cursor.offsets.pop(file.name, None)
            cursor.marks.pop(file.name, None)


def at_end(files: list[RankFile], cursor: Cursor) -> bool:
    """Whether everything in `files` was read. A log shorter than its offset was truncated since, so it was not."""
    return all(_size(file.path) in (None, cursor.offsets.get(file.name, 0)) for file in files)


def skip_to_tail(files: list[RankFile], cursor: Cursor, lines: int) -> None:
    """Move `cursor` to the last `lines` lines of each rank, in the newest attempt that has logs."""
    newest = max((file.attempt for file in files), default=0)
    cursor.first = newest
    for file in files:
        if file.attempt == newest:
            cursor.offsets[file.name] = _tail_offset(file.path, lines)
            cursor.marks.pop(file.name, None)


def skip_to_time(files: list[RankFile], cursor: Cursor, since_s: float) -> None:
    """Move `cursor` forward to the first line of each log that was written, or not complete yet, at `since_s`.

    Raises: ConflictError if the times of a log are not known that was written since.
    """
    for file in files:
        if file.attempt >= cursor.first:
            offset = _offset_since(file, since_s)
            if offset > cursor.offsets.get(file.name, 0):
                cursor.offsets[file.name] = offset
                cursor.marks.pop(file.name, None)


def _offset_since(file: RankFile, since_s: float) -> int:
    for _ in range(_TRIES):
        try:
            with open_regular(file.path) as log:
                status = os.fstat(log.fileno())
                if status.st_mtime < since_s or status.st_size == 0:
                    return status.st_size
                with LogTimes(file.path) as known:
                    offset = known.offset_since(since_s)
                    if known.fits(status.st_size):
                        return _line_start(log, offset)
        except FileNotFoundError:
            break
        except OSError:
            pass
        time.sleep(_AGAIN_S)
    whose = f"rank {file.rank}" if file.role is None else f"role {file.role}"
    raise ConflictError(
        f"the times of the output of {whose} in attempt {file.attempt} are not known: it ran under an older version, or they "
        "could not be written (then the job has a warning)",
        "read it without a time, or name a later attempt",
    )


def _line_start(log: BinaryIO, offset: int) -> int:
    """Where the line begins that `offset` is in; `offset` itself if that is far before."""
    start = max(0, offset - _TAIL_BLOCK_BYTES)
    log.seek(start)
    block = log.read(offset - start)
    ends = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    return start + ends if ends or start == 0 else offset


class _Read(NamedTuple):
    """What was read: the text, the offset behind it, the checksum at that position, and the bytes of the text."""

    text: str
    offset: int
    mark: int | None
    data: bytes = b""
    written_s: float = 0.0  # when the log was last written
    size: int = 0  # of the log
    times: list[Lines] | None = None


def _read(file: RankFile, place: tuple[int, int | None], limit: int, final: bool) -> _Read:
    """Text from an offset (with its checksum) on, in whole lines if possible. `final`: nothing more will be written.

    If the log was truncated, reading resumes at the notice.
    """
    offset, mark = place
    try:
        with open_regular(file.path) as log:
            status = os.fstat(log.fileno())
            before = _before(log, offset)
            if status.st_size < offset or (mark is not None and zlib.crc32(before) != mark):
                log.seek(0)
                offset = _after_cut(log)
                before = _before(log, offset)
            data = log.read(limit)
    except OSError:  # retried with the next read
        return _Read("", offset, mark)
    if len(data) < limit and not final and time.time() - status.st_mtime < _SETTLED_S:
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=final and len(data) < limit)
    data = data[: len(data) - len(decoder.getstate()[0])]
    mark = zlib.crc32((before + data)[-_MARK_BYTES:])
    return _Read(text, offset + len(data), mark, data, status.st_mtime, status.st_size)


def _read_with_times(file: RankFile, place: tuple[int, int | None], limit: int, final: bool) -> _Read:
    """As `_read`, with the times of the lines; they are None if there are none, as of an older version."""
    for _ in range(_TRIES):
        try:
            with LogTimes(file.path) as known:
                read = _read(file, place, limit, final)
                # What was written since the last record was written lately, unless the agent is gone.
                times = known.lines(read.data, read.offset - len(read.data), None if final else round(read.written_s, 3))
                if known.fits(read.size):
                    return read._replace(times=times)
        except OSError:
            break
        time.sleep(_AGAIN_S)
    read = _read(file, place, limit, final)
    lines = read.data.count(b"\n") + (read.data[-1:] not in (b"", b"\n"))
    return read._replace(times=[(lines, None)])


def _before(log: BinaryIO, offset: int) -> bytes:
    """The bytes before `offset` that its checksum covers; leaves the file positioned at `offset`."""
    log.seek(max(0, offset - _MARK_BYTES))
    return log.read(min(offset, _MARK_BYTES))


def _after_cut(log: BinaryIO) -> int:
    """Where to continue in a log that became shorter: at the agent's notice, else at the beginning."""
    return max(0, log.read(_CUT_KEPT_MAX_BYTES).rfind(_CUT_NOTICE))


def _tail_offset(path: str, lines: int) -> int:
    """The offset of the last `lines` lines."""
    try:
        with open_regular(path) as log:
            end = position = log.seek(0, os.SEEK_END)
            counted = 0
            if lines == 0:
                return end
            while position > 0:
                start = max(0, position - _TAIL_BLOCK_BYTES)
                log.seek(start)
                block = log.read(position - start)
                at = len(block) - 1 if position == end and block.endswith(b"\n") else len(block)
                while (at := block.rfind(b"\n", 0, at)) >= 0:
                    counted += 1
                    if counted == lines:
                        return start + at + 1
                position = start
    except OSError:
        return 0
    return 0


def _size(path: str) -> int | None:
    """The size of a regular file; None if there is no such file or it cannot be examined."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _numbers(root: Path) -> list[int]:
    return sorted(int(name) for name in _entries(root) if name.isdecimal())


def _nodes(directory: Path) -> Iterator[tuple[int, Path]]:
    for name in _entries(directory):
        match = _NODE.match(name)
        if match is not None:
            yield int(match[1]), directory / name


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
