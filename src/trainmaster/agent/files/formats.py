"""Proves by its format alone that a file is complete. Nothing in the file is executed, and a truncated file is never proven.

A format proves a file only if it marks its own end: every member of a zip with its checksum, a safetensors header whose
lengths add up, a JSON object or list that parses, the opcodes of one pickle (protocol 2 or later) up to STOP at the very
end. Several pickles in a row (torch's legacy format) prove nothing: the first one alone would look complete too. Examine
a private copy: for a file that changes while it is read, a proof means nothing.

A program may write anything, so time and memory are bounded by the file's size. A file that would need more is unproven.
"""

import errno
import json
import os
import stat
import struct
from typing import BinaryIO, List, NamedTuple, Optional, Tuple

from trainmaster.agent.files.declared_sizes import cut_short, declares_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import zipfile

_JSON_MAX_BYTES = 32 * 1024 * 1024
_JSON_MEMORY_MAX = 192 * 1024 * 1024  # bytes for parsing, without the text itself; see `_json_memory`
_HEADER_MAX_BYTES = 100 * 1024 * 1024  # of safetensors, by its own definition
_HEADER_READ_MAX = 8 * 1024 * 1024  # some 80,000 tensors; a parsed header takes about ten times its size
DIRECTORY_MAX = 8 * 1024 * 1024  # bytes of a zip's central directory: some 100,000 members
_UNPACKED_MIN = 1024 * 1024 * 1024  # a zip may always unpack to this size, or
_UNPACKED_TIMES = 20  # to so many times its own size
_TAIL_BYTES = 65535 + 22  # the last record of a zip begins at most so far from its end
_CHUNK_BYTES = 1 << 20


class Verdict(NamedTuple):
    """`format` is set if the file is proven complete; `torn` if the format is known and the file is certainly incomplete."""

    format: Optional[str]
    torn: bool


_UNPROVEN = Verdict(None, False)
_TORN = Verdict(None, True)


def is_database(path: str) -> bool:
    """Whether it is a database of SQLite, or the log beside one. Its program finds it whole after a crash.

    Raises: OSError if it cannot be read now, as on a disk that fails: then it may be one.
    """
    for end in ("-wal", "-shm", "-journal"):
        path = path[: -len(end)] if path.endswith(end) else path
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would have to be waited for
            return False
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return False
        raise


def proof(path: str) -> Optional[str]:
    """ "zip", "safetensors", "json" or "pickle" if that format proves the file complete; else None. Raises: OSError."""
    return examine(path).format


def examine(path: str) -> Verdict:
    """The full verdict. Reads a zip, pickle or JSON file completely, and of safetensors the header. Raises: OSError."""
    with open(path, "rb", buffering=0) as raw:
        file: BinaryIO = raw
        size = os.fstat(raw.fileno()).st_size
        head = file.read(16)
        if head.startswith(b"PK\x03\x04"):
            return _zip(path, file, size)
        if len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
            return _pickle(file)
        if declares_size(head):
            return _TORN if cut_short(file, size) else _UNPROVEN
        if _has_header(head):
            return _safetensors(file, size)
        if head.lstrip()[:1] in (b"{", b"["):
            return _json(path, file, size)
        return _UNPROVEN


def plausible(path: str, moving: bool) -> Optional[str]:
    """The format by which `examine` may prove the file. Cheap: reads only both ends of it. Raises: OSError.

    `moving`: it is open or was just written. Then only a zip is worth it: its checksums detect a copy of two states.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(16)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
    if head.startswith(b"PK\x03\x04"):
        return "zip" if b"PK\x05\x06" in tail else None
    if moving:
        return None
    if head[:1] == b"\x80":
        return "pickle" if tail.endswith(b".") else None
    if _has_header(head):
        length: int = struct.unpack("<Q", head[:8])[0]
        return "safetensors" if 8 + length <= size else None
    closed = head.lstrip()[:1] in (b"{", b"[") and tail.rstrip()[-1:] in (b"}", b"]")
    return "json" if closed else None


def begins_as_weights(path: str) -> bool:
    """Whether it begins like a file of a format for weights, which may be cut short: no log does. Raises: OSError."""
    with open(path, "rb", buffering=0) as file:
        head = file.read(16)
    return head.startswith((b"PK\x03\x04", b"\x80")) or _has_header(head) or declares_size(head)


def is_bare_pickle(path: str) -> bool:
    """Whether the file is exactly one pickle of any protocol. Raises: OSError."""
    with open(path, "rb", buffering=0) as file:
        return _pickle(file).format == "pickle"


def _has_header(head: bytes) -> bool:
    """Whether the file begins like safetensors: the length of a JSON object, then the object."""
    return head[8:9] == b"{" and bool(struct.unpack("<Q", head[:8])[0] <= _HEADER_MAX_BYTES)


def _zip(path: str, file: BinaryIO, size: int) -> Verdict:
    end = _end_record(file, size)
    if end is None:
        return _TORN
    directory = _zip_start(file, *end)
    if directory is None:
        return _UNPROVEN  # its offsets count from elsewhere, as of the last of several zips in a row (torch's `.distcp`)
    import zipfile  # noqa: PLC0415  # heavy, and rarely needed
    import zlib  # noqa: PLC0415  # likewise

    try:
        if directory[1] > DIRECTORY_MAX:
            return _UNPROVEN
        with zipfile.ZipFile(path) as archive:
            if archive.start_dir != directory[0] or not archive.namelist() or not _is_modest(archive.infolist(), size):
                return _UNPROVEN
            for member in archive.infolist():
                with archive.open(member) as content:
                    while content.read(_CHUNK_BYTES):
                        pass  # reading to the end checks the checksum
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return _TORN
    except (NotImplementedError, RuntimeError, ValueError, OverflowError, struct.error):
        return _UNPROVEN  # a compression or variant that this Python cannot read
    return Verdict("zip", False)


def zip_members(path: str) -> Optional[List["zipfile.ZipInfo"]]:
    """The members of a zip; None if examining each of them is not bounded by the file's size. Raises: OSError.

    Raises: zipfile.BadZipFile and others of `zipfile`, as `zipfile.ZipFile` does.
    """
    import zipfile  # noqa: PLC0415  # heavy, and rarely needed

    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        directory = zip_directory(file, size)
    if (size if directory is None else directory[1]) > DIRECTORY_MAX:
        return None
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    return members if _is_modest(members, size) else None


def _is_modest(members: List["zipfile.ZipInfo"], size: int) -> bool:
    """Whether reading all members is bounded: stored or deflated (other compressions unpack without a memory limit), not
    encrypted (their checksums cannot be read), none inside another, and in total not many times the file's size.
    """
    packed = sum(member.compress_size for member in members)
    unpacked = sum(member.file_size for member in members)
    plain = all(member.compress_type in (0, 8) and not member.flag_bits & 1 for member in members)
    return plain and packed <= size and unpacked <= max(_UNPACKED_MIN, _UNPACKED_TIMES * size)


def zip_directory(file: BinaryIO, size: int) -> Optional[Tuple[int, int]]:
    """Offset and size of the central directory, if it and its end records reach exactly to the end of the file.

    Offsets must count from the start of the file: otherwise a zip that is the tail of a truncated file would pass.
    """
    end = _end_record(file, size)
    return None if end is None else _zip_start(file, *end)


def _end_record(file: BinaryIO, size: int) -> Optional[Tuple[int, bytes]]:
    """Where a zip's last record begins, and the record; None if none reaches exactly to the end of the file."""
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    tail = file.read(_TAIL_BYTES)
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        record = tail[at : at + 22]
        if len(record) == 22 and start + at + 22 + struct.unpack("<H", record[20:])[0] == size:
            return start + at, record
        at = tail.rfind(b"PK\x05\x06", 0, at)
    return None


def _zip_start(file: BinaryIO, end: int, record: bytes) -> Optional[Tuple[int, int]]:
    """Offset and size of the directory, from the record at `end` or the zip64 record before it; None if they do not match."""
    length, offset = struct.unpack("<LL", record[12:20])
    if end >= 20:
        file.seek(end - 20)
        locator = file.read(20)
        if locator.startswith(b"PK\x06\x07"):
            before, end = end, struct.unpack("<Q", locator[8:16])[0]
            if end > before:
                return None
            file.seek(end)
            large = file.read(56)
            if len(large) < 56 or not large.startswith(b"PK\x06\x06"):
                return None
            length, offset = struct.unpack("<QQ", large[40:56])
    return (int(offset), int(length)) if offset + length == end else None


def _safetensors(file: BinaryIO, size: int) -> Verdict:
    file.seek(0)
    length = struct.unpack("<Q", file.read(8))[0]
    if length > _HEADER_READ_MAX:
        return _UNPROVEN
    try:
        header = json.loads(file.read(length)) if 8 + length <= size else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        return _UNPROVEN
    spans: List[Tuple[int, int]] = []
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        span = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(span, list) and len(span) == 2 and all(isinstance(offset, int) for offset in span)):
            return _UNPROVEN
        spans.append((span[0], span[1]))
    end = 0
    for begin, stop in sorted(spans):
        if begin != end or stop < begin:
            return _UNPROVEN
        end = stop
    if 8 + length + end != size:
        return _TORN
    return _UNPROVEN if _has_hole(file, size) else Verdict("safetensors", False)


def _has_hole(file: BinaryIO, size: int) -> bool:
    """Whether blocks of the file were never written: it was created at full length and not filled."""
    if not hasattr(os, "SEEK_HOLE"):
        return False
    try:
        return size > 0 and os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size
    except OSError:
        return False  # the file system cannot tell


def _json(path: str, file: BinaryIO, size: int) -> Verdict:
    if size > _JSON_MAX_BYTES or path.endswith((".jsonl", ".ndjson")):
        return _UNPROVEN  # of JSON lines, the first line alone would look complete too
    file.seek(0)
    data = _read_all(file)
    if _json_memory(data) > _JSON_MEMORY_MAX:
        return _UNPROVEN
    try:  # the values are discarded: it only has to parse
        json.loads(data, object_pairs_hook=_nothing, parse_int=_nothing, parse_float=_nothing, parse_constant=_nothing)
    except json.JSONDecodeError as error:  # more after the first value: JSON lines, as Detectron2's metrics.json
        return Verdict(None, path.endswith(".json") and error.msg != "Extra data")
    except (ValueError, RecursionError):
        return Verdict(None, path.endswith(".json"))
    return Verdict("json", False)


def _nothing(parsed: object) -> None:
    """Replaces a parsed value."""


def _json_memory(data: bytes) -> int:
    """An upper bound of the bytes that `json` allocates while it parses `data`, without the characters of strings."""
    return 64 * (data.count(b"[") + data.count(b"{")) + 32 * data.count(b'"') + 8 * data.count(b",") + 72 * data.count(b":")


def _read_all(file: BinaryIO) -> bytes:
    pieces: List[bytes] = []
    while True:
        piece = file.read(_CHUNK_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


# The argument of each pickle opcode: -1 unknown, 0…8 that many bytes, 11/14/18 a length of 1/4/8 bytes and that many
# bytes, 21/22 one or two lines. From the standard library's description of the format (`pickletools`).
_ARGUMENT = [-1] * 256
for _count, _codes in (
    (0, b"(.012NQRabdelostu)]}\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98"),
    (1, b"Kqh\x80\x82"),
    (2, b"M\x83"),
    (4, b"Jrj\x84"),
    (8, b"G\x95"),
    (11, b"UC\x8c\x8a"),
    (14, b"TBX\x8b"),
    (18, b"\x8d\x8e\x96"),
    (21, b"ILSVFPgp"),
    (22, b"ci"),
):
    for _code in _codes:
        _ARGUMENT[_code] = _count
_STOP = 0x2E
_TORCH_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # its first pickle; more pickles follow


def _pickle(file: BinaryIO) -> Verdict:
    """Walk the opcodes. O(opcodes) in Python, about 5 million per second; the bytes of arrays are skipped."""
    file.seek(0)
    data, at, argument = file.read(_CHUNK_BYTES), 0, _ARGUMENT
    if data.startswith(_TORCH_LEGACY):
        return _UNPROVEN
    while True:
        if at + 9 > len(data):  # the longest fixed part: an opcode and eight bytes
            data, at = data[at:] + file.read(_CHUNK_BYTES), 0
            if not data:
                return _TORN
        code = data[at]
        at += 1
        count = argument[code]
        if count == 0:
            if code == _STOP:
                ended = at == len(data) and not file.read(1)
                return Verdict("pickle", False) if ended else _UNPROVEN
            continue
        if count < 0:
            return _UNPROVEN
        if count > 20:
            for _ in range(count - 20):
                while True:
                    end = data.find(b"\n", at)
                    if end >= 0:
                        break
                    data, at = file.read(_CHUNK_BYTES), 0  # the content of the line does not matter
                    if not data:
                        return _TORN
                at = end + 1
            continue
        if count > 10:
            width = count - 10
            if at + width > len(data):
                return _TORN
            count = int.from_bytes(data[at : at + width], "little")
            at += width
        at += count
        if at > len(data):  # beyond the bytes read: seek there, and check that the file is long enough
            at -= len(data)
            if at > os.fstat(file.fileno()).st_size:
                return _TORN  # avoids a seek beyond the largest file offset
            file.seek(at - 1, os.SEEK_CUR)
            if not file.read(1):
                return _TORN
            data, at = b"", 0
