"""A file is proven complete by its format, and a file cut at any byte is not."""

import io
import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.agent.artifacts import kinds
from trainmaster.agent.files import formats


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = comment
    return buffer.getvalue()


def safetensors(values: bytes = b"\x01" * 48) -> bytes:
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
            "b": {"dtype": "F32", "shape": [8], "data_offsets": [16, 48]},
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + values


STATE = {"step": 25, "weights": [0.5, -1.25e-7] * 8, "rng": (3, tuple(range(40)), None), "name": "naïve", "raw": b".." * 300}
INNER = zipped({"weights": b"PK\x05\x06" + bytes(range(200))})
SAMPLES = {
    "zip": [
        INNER,
        zipped({"a": b"text" * 50, "b": b""}, zipfile.ZIP_DEFLATED, b"a comment"),
        zipped({"inner.zip": INNER, "z": b"1"}),
    ],
    "safetensors": [safetensors()],
    "json": [json.dumps({"epoch": 3, "rng": [3, [1, 2, 3], None], "deep": [[{}], "]}"]}).encode(), b"[1, 2, 30]"],
    "pickle": [pickle.dumps(STATE, protocol) for protocol in range(2, 6)]
    + [pickle.dumps(bytearray(b"." * 70000), 5), pickle.dumps(frozenset({Path("a"), 10**40}), 4)],
}
ALL = [(kind, data) for kind, samples in SAMPLES.items() for data in samples]


def judged(place: Path, data: bytes, name: str = "checkpoint") -> formats.Verdict:
    (place / name).write_bytes(data)
    return formats.examine(str(place / name))


@pytest.mark.parametrize(("kind", "data"), ALL, ids=range(len(ALL)))
def test_whole_samples_are_proven(tmp_path: Path, kind: str, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    assert formats.proof(str(path)) == kind
    assert formats.plausible(str(path), moving=False)


@pytest.mark.parametrize(("kind", "data"), ALL, ids=range(len(ALL)))
def test_no_sample_cut_short_is_proven(tmp_path: Path, kind: str, data: bytes) -> None:
    cuts = sorted({*range(1000), *range(0, len(data), 997), *range(max(0, len(data) - 1000), len(data))} & {*range(len(data))})
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    proven = []
    for cut in reversed(cuts):
        os.truncate(path, cut)
        if formats.proof(str(path)) is not None:
            proven.append(cut)
    assert proven == []


@pytest.mark.parametrize(("kind", "data"), ALL, ids=range(len(ALL)))
def test_nothing_may_follow(tmp_path: Path, kind: str, data: bytes) -> None:
    assert judged(tmp_path, data + b"x").format is None


@settings(max_examples=examples(60, 600), deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=400) | st.text(max_size=300),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    ),
    protocol=st.integers(2, 5),
    part=st.floats(0, 0.999),
)
def test_pickles_of_any_value(tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int, part: float) -> None:
    place = tmp_path_factory.mktemp("pickles")
    data = pickle.dumps(value, protocol)
    assert judged(place, data) == formats.Verdict("pickle", False)
    assert judged(place, data[: int(part * len(data))]).format is None


def test_a_wrong_byte_in_a_zip_is_torn(tmp_path: Path) -> None:
    data = bytearray(INNER)
    data[60] ^= 1
    assert judged(tmp_path, bytes(data)) == formats.Verdict(None, True)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty", b""),
        ("number", b"20"),
        ("0.5 cut short, which would be opcodes", b"0."),
        ("an old pickle, whose opcodes are letters", pickle.dumps([1, 2], 0)),
        ("two pickles in a row", pickle.dumps(1) + pickle.dumps({"a": 2})),
        ("lines.jsonl", b'{"a": 1}\n'),
        ("json lines", b'{"a": 1}\n{"a": 2}\n'),
        ("json number", b"123"),
        ("image", b"\x89PNG\r\n\x1a\n" + bytes(100)),
        ("empty zip", zipped({})),
    ],
)
def test_the_rest_proves_nothing(tmp_path: Path, name: str, data: bytes) -> None:
    assert judged(tmp_path, data, name).format is None


@pytest.mark.parametrize("offset", [2**62, 2**63, 2**64 - 1])
def test_lengths_beyond_all_files_are_no_errors(tmp_path: Path, offset: int) -> None:
    """A flipped bit in a length may say anything; the thread that looks must survive it."""
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, offset, 1)
    directory = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 46, 0xFFFFFFFF, 0)
    for name, data in (("a.zip", b"PK\x03\x04" + bytes(80) + locator + directory), ("a.pkl", b"\x80\x04\x8e" + struct.pack("<Q", offset))):
        (tmp_path / name).write_bytes(data)
        assert formats.examine(str(tmp_path / name)).format is None


def test_what_is_certainly_torn_is_told_from_what_is_unknown(tmp_path: Path) -> None:
    torn = {
        "a zip": INNER[:-1],
        "a pickle": pickle.dumps(STATE)[:-1],
        "safetensors": safetensors()[:-1],
        "state.json": b'{"a": ',
        "lines.json": b'{"a": 1}\n{"a": 2}\n{"a"',
        "state.txt": b'{"a": ',
        "two pickles": pickle.dumps(1) + pickle.dumps(2),
    }
    assert {name: judged(tmp_path, data, name).torn for name, data in torn.items()} == {
        "a zip": True,
        "a pickle": True,
        "safetensors": True,
        "state.json": True,
        "lines.json": False,  # a log of JSON lines, as Detectron2's metrics.json: never whole, and never torn
        "state.txt": False,
        "two pickles": False,
    }


def test_zips_in_a_row_are_not_torn(tmp_path: Path) -> None:
    """Files of torch's distributed checkpoints are such: each was taken for cut short, and none was ever kept."""
    small, large = zipped({"a": b"1" * 9}), zipped({"b": b"2" * 5000})
    for data in (small + large, large + small, small * 3):
        assert judged(tmp_path, data, "__0_0.distcp") == formats.Verdict(None, False)
        assert judged(tmp_path, data[:-1], "__0_0.distcp").torn


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_of_torch_is_not_torn(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    state = {"a": torch.zeros(300), "b": torch.ones(30), "step": 7}
    checkpoint.save(state, checkpoint_id=str(tmp_path / "step-7"), no_dist=True)
    files = [path for path in (tmp_path / "step-7").iterdir() if path.suffix == ".distcp"]
    assert files
    assert not any(formats.examine(str(path)).torn for path in files)


def test_safetensors_made_to_length_and_never_filled_are_not_proven(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [1 << 22], "data_offsets": [0, 1 << 22]}}).encode()
    path = tmp_path / "sparse"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + (1 << 22))
    assert formats.proof(str(path)) is None


def test_pickles_are_never_executed(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    assert judged(tmp_path, pickle.dumps(Bomb())).format == "pickle"
    assert not (tmp_path / "executed").exists()


def test_torch_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: a real torch.save cannot be tried")
    state = {"model": torch.nn.Linear(8, 8).state_dict(), "step": 25}
    path = tmp_path / "checkpoint.pt"
    torch.save(state, path)
    assert formats.proof(str(path)) == "zip"
    for cut in reversed(range(0, path.stat().st_size, 7)):
        os.truncate(path, cut)
        assert formats.proof(str(path)) is None
    torch.save(state, path, _use_new_zipfile_serialization=False)
    for cut in reversed(range(path.stat().st_size + 1)):
        os.truncate(path, cut)
        assert formats.proof(str(path)) is None


def test_walking_is_quick_enough(tmp_path: Path) -> None:
    data = pickle.dumps([float(number) for number in range(100_000)])
    path = tmp_path / "floats"
    path.write_bytes(data)
    began_s = os.times().user
    assert formats.proof(str(path)) == "pickle"
    assert os.times().user - began_s < 1.0


def peak_bytes(work: Callable[[], object]) -> int:
    """Memory that Python took meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def many(members: int, size: int) -> bytes:
    """A zip whose directory names the same small member many times."""
    one = zipped({"a": os.urandom(size)})
    start = one.index(b"PK\x01\x02")
    entry, end = one[start : one.index(b"PK\x05\x06")], one[one.index(b"PK\x05\x06") :]
    counted = struct.pack("<HHLL", min(members, 0xFFFF), min(members, 0xFFFF), len(entry) * members, start)
    return one[:start] + entry * members + end[:8] + counted + end[20:]


HOSTILE: dict[str, Callable[[], bytes]] = {
    "bzip2": lambda: zipped({"a": b"\0" * 90_000_000}, zipfile.ZIP_BZIP2),
    "directory": lambda: many(200_000, 1),
    "one inside another": lambda: many(1000, 10_000),
    "json": lambda: b"[" + b"[]," * 10_000_000 + b"[]]",
    "safetensors": lambda: struct.pack("<Q", 20_000_000) + b"{" + b'"a":{},' * 2_857_142 + b'"":{}',
    "pickle": lambda: b"\x80\x02I" + b"1" * 60_000_000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_file_takes_much_memory_or_time_to_judge(tmp_path: Path, what: str) -> None:
    """S9: a zip of 522 KB took 1 GB, its members being packed with bzip2."""
    place = tmp_path / "model.pt"
    place.write_bytes(HOSTILE[what]())
    began = time.thread_time()
    assert peak_bytes(lambda: formats.examine(str(place))) < 64 * 2**20
    assert formats.examine(str(place)).format is None
    assert peak_bytes(lambda: kinds.kind_of(str(place), "model.pt", "model", False)) < 64 * 2**20
    assert time.thread_time() - began < 8.0  # under half a second where it was measured


def numpy_file(kind: str, shape: str, values: int) -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(values)


def hdf5_file(version: int, end: int, size: int, opened: int = 0, driver: int = 2**64 - 1) -> bytes:
    """The superblock, as HDF5 1.14 writes it, and zeros."""
    nothing = 2**64 - 1
    if version < 2:
        begin = struct.pack("<8sBBBBBBBBHHI", b"\x89HDF\r\n\x1a\n", version, 0, 0, 0, 0, 8, 8, 0, 4, 16, opened)
        head = begin + bytes(4 * version) + struct.pack("<4Q", 0, nothing, end, driver)
    else:
        head = struct.pack("<8sBBBB4Q", b"\x89HDF\r\n\x1a\n", version, 8, 8, opened, 0, driver, end, 48)
    return head.ljust(size, b"\0")


def test_what_its_own_header_declares_longer_is_torn_and_nothing_proves_it(tmp_path: Path) -> None:
    whole = {
        "floats": numpy_file("'<f4'", "(10, 100)", 4000),
        "a scalar": numpy_file("'<i8'", "()", 8),
        "nothing": numpy_file("'|b1'", "(0, 4)", 0),
        "text": numpy_file("'<U5'", "(3,)", 60),
        "times": numpy_file("'<M8[ns]'", "(3,)", 24),
        "two arrays": numpy_file("'<f4'", "(1,)", 4) * 2,
        "objects": numpy_file("'|O'", "(1000,)", 30),
        "records": numpy_file("[('a', '<f4')]", "(1000,)", 30),
        "odd": numpy_file("'<f4'", "(9 , 9" + "9" * 500 + ", x)", 30),
        **{f"HDF5 {version}": hdf5_file(version, 900, 900) for version in range(4)},
        "one of a family": hdf5_file(0, 9000, 900, driver=400),
        "flushed, and copied": hdf5_file(0, 900, 900, opened=1),
        "read while it is written": hdf5_file(3, 900, 900, opened=5),
        "extended": hdf5_file(2, 9000, 900, driver=400),
        "a later version": hdf5_file(4, 9000, 900),
    }
    for name, data in whole.items():
        assert judged(tmp_path, data) == formats.Verdict(None, False), name
    torn = {
        "a byte less": whole["floats"][:-1],
        "the header": whole["floats"][:100],
        "its beginning": whole["floats"][:20],
        "text": whole["text"][:-1],
        "never filled": numpy_file("'<f4'", "(1000000,)", 1000),
        **{f"HDF5 {version}": hdf5_file(version, 901, 900) for version in range(4)},
        **{f"open HDF5 {version}": hdf5_file(version, 900, 900, opened=1) for version in (2, 3)},
        "the superblock": whole["HDF5 0"][:50],
    }
    for name, data in torn.items():
        assert judged(tmp_path, data) == formats.Verdict(None, True), name
