"""TensorBoard's event files as files of metrics: encoded here as their description says, and damaged in every place."""

import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from trainmaster.agent.metric_files.advice import advice, pattern_for
from trainmaster.agent.metric_files.event_file import EventFile, named
from trainmaster.agent.metric_files.reader import metric_file
from trainmaster.agent.metric_files.rows import noted

NAME = "events.out.tfevents.1764312345.vm.1234.0"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def field(number: int, value: int | float | bytes) -> bytes:
    """A field: a whole number, a float of four bytes, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value) if isinstance(value, int) else varint(number << 3 | 5) + struct.pack("<f", value)


def masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(event: bytes) -> bytes:
    size = struct.pack("<Q", len(event))
    return size + struct.pack("<I", masked(size)) + event + struct.pack("<I", masked(event))


def scalar(step: int, tag: str, value: bytes) -> bytes:
    wall = varint(1 << 3 | 1) + struct.pack("<d", 1764312345.5)
    return record(wall + field(2, step) + field(5, field(1, field(1, tag.encode()) + value)))


def simple(step: int, tag: str, value: float) -> bytes:
    return scalar(step, tag, field(2, value))


def tensor(step: int, tag: str, kind: int, content: bytes, shape: bytes = b"") -> bytes:
    return scalar(step, tag, field(8, field(1, kind) + (field(2, shape) if shape else b"") + content))


BEGIN = record(varint(1 << 3 | 1) + struct.pack("<d", 1.0) + field(3, b"brain.Event:2"))


def test_the_encoding_is_that_of_tensorboard() -> None:
    """The checksum of nine digits is known of CRC-32C."""
    assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_are_read_whatever_stands_beside_them(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(
        BEGIN
        + simple(1, "train/loss", 0.5)
        + tensor(2, "epoch_loss", 1, field(4, struct.pack("<f", 0.25)))
        + tensor(3, "double", 2, field(6, struct.pack("<d", 0.125)))
        + tensor(4, "floats", 1, field(5, struct.pack("<f", 2.0)))
        + tensor(5, "text", 7, field(8, b"hello"))
        + tensor(6, "vector", 1, field(4, struct.pack("<ff", 1, 2)), field(2, field(1, 2)))
        + scalar(7, "image", field(4, b"\x89PNG" * 100))
        + scalar(8, "histogram", field(5, b"x" * 50))
        + simple(9, "epoch", 1.0) + simple(0, "hp_metric", -1.0) + simple(10, "hp_metric", 0.75)
        + record(b"\xff" * 20) + record(b"") + record(b"x" * (2 << 20))
        + simple(11, "loss", float("nan")) + simple(300, "loss", float("inf"))
    )  # fmt: skip
    found = list(EventFile(str(path)).news())
    assert str(found) == str([
        (1, {"train/loss": 0.5}), (2, {"epoch_loss": 0.25}), (3, {"double": 0.125}), (4, {"floats": 2.0}),
        (10, {"hp_metric": 0.75}), (11, {"loss": float("nan")}), (300, {"loss": float("inf")}),
    ])  # fmt: skip


def test_records_come_when_they_are_whole_and_once(tmp_path: Path) -> None:
    path, whole = tmp_path / NAME, BEGIN + b"".join(simple(step, "loss", 1 / step) for step in range(1, 6))
    path.write_bytes(b"")
    file, told = EventFile(str(path)), list[int]()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        told += [step for step, _ in file.news() if step is not None]
    assert told == [1, 2, 3, 4, 5]
    assert list(file.news(last=True)) == []


def test_what_an_earlier_attempt_wrote_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(BEGIN + simple(1, "loss", 0.5))
    file = metric_file(str(path), noted(str(path)))
    assert list(file.news()) == []
    with path.open("ab") as more:
        more.write(simple(2, "loss", 0.25))
    assert list(file.news()) == [(2, {"loss": 0.25})]
    path.write_bytes(BEGIN + simple(7, "loss", 0.125))
    assert list(file.news()) == [(7, {"loss": 0.125})], "a file that begins again is another one"


def test_damage_is_told_and_ends_nothing_else(tmp_path: Path) -> None:
    """One byte of a length is another: what follows cannot be found any more. Any other damage costs one record at most."""
    path, whole = tmp_path / NAME, BEGIN + b"".join(simple(step, "loss", 0.5) for step in range(1, 4))
    rng = random.Random(1)
    for _ in range(500):
        broken = bytearray(whole)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(broken))
        found = []
        with suppress(ValueError):
            found += EventFile(str(path)).news()
        assert len(found) <= 3
    path.write_bytes(b"step,loss\n1,0.5\n" * 10)
    with pytest.raises(ValueError, match="that is no event of TensorBoard"):
        list(EventFile(str(path)).news())


@pytest.mark.parametrize(
    ("path", "tag", "name"),
    [
        ("runs/Nov28_vm/" + NAME, "Loss/train", "Loss/train"),
        ("logs/validation/" + NAME, "epoch_loss", "validation_epoch_loss"),
        ("logs/train/" + NAME, "epoch_loss", "epoch_loss"),
        ("runs/Nov28_vm/loss_test/" + NAME, "loss", "loss_test"),
        ("runs/Nov28_vm/run_14h/loss_a b/" + NAME, "loss", "loss_a b"),
        ("runs/x/Loss_all_val/" + NAME, "Loss/all", "Loss/all_val"),
    ],
)
def test_what_a_tag_is_called(path: str, tag: str, name: str) -> None:
    assert named(path, tag) == name


def test_a_program_that_prints_nothing_is_told_how_its_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "runs/Nov28_06-31_vm" / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(BEGIN + simple(1, "train/loss", 0.5) + simple(2, "lr", 0.5))
    told = advice(str(tmp_path), 0.0)
    assert f"but runs/Nov28_06-31_vm/{NAME} has train/loss; these are read with --metrics-file 'runs/**/*.tfevents.*'" in told
    assert pattern_for(NAME) == "*.tfevents.*"
