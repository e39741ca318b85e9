"""Scalars in TensorBoard's event files (`events.out.tfevents.*`), as PyTorch, TensorFlow, Keras, Lightning and SB3 write them.

A file is a row of records: the length of an event (8 bytes), its checksum, the event, its checksum. An event is a protocol
buffer, of which only the step and the scalars are decoded (TensorFlow's event.proto, summary.proto, tensor.proto). A record is
read once it is whole. Files only grow, and each process writes one of its own.
"""

from __future__ import annotations

import os
import struct

from trainmaster.agent.metric_files.rows import opened
from trainmaster.agent.metrics.pairs import head, under
from trainmaster.agent.transport.point_values import is_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Dict, Iterator, Optional, Tuple, Union

    from trainmaster.agent.metric_files.rows import Noted, Row

    Field = Tuple[int, Union[int, bytes]]  # its number, its value

MARK = ".tfevents."  # in the name of such a file
_HEAD = struct.Struct("<QI")
_TAIL_BYTES = 4
_EVENT_MAX = 1 << 20  # bytes; a larger one is an image, a histogram or a graph
_TAG_MAX = 250  # bytes
_STEP, _SUMMARY = 2, 5  # fields of an event
_VALUE = 1  # of a summary
_TAG, _SIMPLE, _TENSOR = 1, 2, 8  # of a value
_TYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6  # of a tensor
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_KINDS = {1: _FLOAT, 2: _DOUBLE}  # by the type of a tensor
_POLYNOMIAL = 0x82F63B78  # of CRC-32C


def is_event_file(path: str) -> bool:
    """Whether a file is one of TensorBoard, by its name."""
    return MARK in os.path.basename(path)


class EventFile:
    """One file. `noted`: what was in it when the attempt began, which an earlier one wrote and which is not told."""

    def __init__(self, path: str, noted: Optional[Noted] = None) -> None:
        self._path = path
        self._old_bytes = 0 if noted is None else noted[0]
        self._at = 0

    def news(self, last: bool = False) -> Iterator[Row]:
        """The scalars of the records that were not told yet, all to be taken. `last` says nothing: a cut record has no value.

        Raises: OSError; ValueError if it is damaged.
        """
        with open(opened(self._path), "rb") as file:
            if os.fstat(file.fileno()).st_size < self._at:
                self._at = self._old_bytes = 0  # begun again
            while (size := self._size(file)) >= 0:
                event = file.read(size) if size <= _EVENT_MAX and self._at >= self._old_bytes else b""
                self._at += _HEAD.size + size + _TAIL_BYTES
                step, values = _scalars(event)
                if values and is_step(step):
                    yield step, {named(self._path, tag): value for tag, value in values.items()}

    def _size(self, file: BinaryIO) -> int:
        """The bytes of the next event, -1 if it is not whole yet; the file is then at its begin. Raises: ValueError."""
        file.seek(self._at)
        begin = file.read(_HEAD.size)
        if len(begin) < _HEAD.size:
            return -1
        size, checksum = _HEAD.unpack(begin)
        if _masked(_crc(begin[:8])) != checksum:
            raise ValueError(f"it is damaged at byte {self._at}: that is no event of TensorBoard")
        return size if self._at + _HEAD.size + size + _TAIL_BYTES <= os.fstat(file.fileno()).st_size else -1


def named(path: str, tag: str) -> str:
    """The metric of a tag. In a directory `validation`, as of Keras, `validation_` stands before it; in `loss_test`, as of
    PyTorch's `add_scalars("loss", {"test": …})`, the rest of the directory's name stands behind it.
    """
    directory = os.path.basename(os.path.dirname(path))
    stem = tag.replace("/", "_") + "_"
    return f"{tag}_{directory[len(stem) :]}" if directory.startswith(stem) else under(head(f"{directory}:"), tag)


def _scalars(event: bytes) -> Tuple[int, Dict[str, float]]:
    """The step of an event, and its scalars. An event that cannot be decoded has none."""
    step, values = 0, dict[str, float]()
    try:
        for field, value in _fields(event):
            if field == _STEP and isinstance(value, int):
                step = value
            elif field == _SUMMARY and isinstance(value, bytes):
                for one, content in _fields(value):
                    if one == _VALUE and isinstance(content, bytes):
                        values.update(_scalar(content))
    except (IndexError, ValueError, struct.error):
        return 0, {}
    return step, values


def _scalar(content: bytes) -> Dict[str, float]:
    """{tag: value}; empty if it is no scalar. Lightning writes its `hp_metric` of -1 and the number of the epoch, too."""
    tag, value = "", None
    for field, found in _fields(content):
        if field == _TAG and isinstance(found, bytes) and len(found) <= _TAG_MAX:
            tag = found.decode()
        elif field == _SIMPLE and isinstance(found, bytes):
            value = float(_FLOAT.unpack(found)[0])
        elif field == _TENSOR and isinstance(found, bytes):
            value = _of_tensor(found)
    if value is None or not tag or not tag.isprintable() or tag == "epoch" or (tag, value) == ("hp_metric", -1.0):
        return {}
    return {tag: value}


def _of_tensor(content: bytes) -> Optional[float]:
    """The number in a tensor without dimensions; None for any other."""
    kind, data = 0, b""
    for field, value in _fields(content):
        if field == _SHAPE and value:
            return None
        if field == _TYPE and isinstance(value, int):
            kind = value
        elif field in (_CONTENT, _FLOATS, _DOUBLES) and isinstance(value, bytes):
            data = value
    form = _KINDS.get(kind)
    return float(form.unpack(data)[0]) if form is not None and len(data) == form.size else None


def _fields(message: bytes) -> Iterator[Field]:
    """The fields of a protocol buffer: whole numbers, and bytes. Raises: IndexError, ValueError if it is none."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(message, at)
            yield key >> 3, number
            continue
        if kind not in (1, 2, 5):
            raise ValueError("a field of another kind")
        size = 8 if kind == 1 else 4
        if kind == 2:
            size, at = _varint(message, at)
        if at + size > len(message):
            raise ValueError("a field that is cut")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    """A number, and where the next field begins. Negative numbers are far above all steps."""
    value = shift = 0
    while shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number without an end")


def _table() -> Tuple[int, ...]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_CRC = _table()


def _crc(data: bytes) -> int:
    """CRC-32C."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _masked(checksum: int) -> int:
    """As a record has it."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
