"""Files that are incomplete by their own header: those of numpy (`.npy`) and HDF5. Nothing proves such a file complete: it may
have been created at full length to be filled later.
"""

import re
from typing import BinaryIO, Optional

_NUMPY, _HDF5 = b"\x93NUMPY", b"\x89HDF\r\n\x1a\n"
_HEADER_MIN, _HEADER_MAX = 60, 1 << 16  # bytes: a superblock of HDF5 up to the last of its addresses, a header of numpy
_OPEN, _SHARED = 1, 4  # flags of HDF5 while a file is open for writing; without the second, HDF5 refuses to read it
_NEVER = 1 << 64  # more bytes than any file has
_TYPE = re.compile(rb"'descr': '[<>|=]?([biufcSUVmM])(\d{1,9})[\['\]]")
_SHAPE = re.compile(rb"'shape': \(([\d, ]{0,600})\)")
_LENGTH = re.compile(rb"\d+")
_WIDTHS = {b"U": 4}  # bytes per unit of a type


def declares_size(head: bytes) -> bool:
    """Whether a file that begins with these 16 bytes has such a header."""
    return head.startswith((_NUMPY, _HDF5))


def cut_short(file: BinaryIO, size: int) -> bool:
    """Whether it is certainly incomplete. Raises: OSError."""
    file.seek(0)
    head = file.read(_HEADER_MAX)
    if len(head) < _HEADER_MIN:
        return size < _HEADER_MIN
    needed = _numpy(head) if head.startswith(_NUMPY) else _hdf5(head)
    return needed is not None and size < needed


def _numpy(head: bytes) -> int:
    """How long the file must be, at least. The size of objects and records is not known."""
    width = 2 if head[6:7] == b"\x01" else 4
    begins = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    header = head[8 + width : begins]
    kind, shape = _TYPE.search(header), _SHAPE.search(header)
    if kind is None or shape is None:
        return begins
    count = 1
    for length in _LENGTH.findall(shape[1]):
        count *= int(length)
    return begins + count * int(kind[2]) * _WIDTHS.get(kind[1], 1)


def _hdf5(head: bytes) -> Optional[int]:
    """How long the file must be, by the address of the end in its superblock; None if it may be in several files."""
    version, width = head[8], head[13] if head[8] < 2 else head[9]
    if version > 3 or width not in (4, 8):
        return None
    if version > 1 and head[11] & (_OPEN | _SHARED) == _OPEN:
        return _NEVER
    at = {0: 24, 1: 28}.get(version, 12)
    base, second, end, fourth = (int.from_bytes(head[at + n * width : at + (n + 1) * width], "little") for n in range(4))
    nothing = (1 << 8 * width) - 1  # an address that is not defined
    several = (fourth if version < 2 else second) != nothing  # then other files may hold the rest
    return None if base or several or end == nothing else end
