"""The kind of an artifact by declaration, name and content. A pickle is never treated as a model."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.artifacts.kinds import is_pickle, kind_of

WEIGHTS = {"layer": [0.5, 1.5], "name": "digits"}
_HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
SAFETENSORS = struct.pack("<Q", len(_HEADER)) + _HEADER + b"\0\0\0\0"


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return file.getvalue()


def judged(directory: Path, name: str, data: bytes, said: str | None = None, pickle_models: bool = False) -> str:
    path = directory / "bytes"
    path.write_bytes(data)
    return kind_of(str(path), name, said, pickle_models)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("plot.PNG", b"\x89PNG", "plot"),
        ("curve.svg", b"<svg/>", "plot"),
        ("report.html", b"<p>", "plot"),
        ("loss.csv", b"step,loss", "metrics"),
        ("loss.jsonl", b"{}", "metrics"),
        ("scores.json", b'{"accuracy": 0.5, "f1": {"micro": 1}}', "metrics"),
        ("scores.json", b'{"accuracy": "high"}', "file"),
        ("scores.json", b"{}", "file"),
        ("scores.json", b'{"accuracy": 0.5', "file"),
        ("scores.json", b"[" * 100_000, "file"),
        ("scores.json", b"\xff", "file"),
        ("confusion.json", b'{"labels": ["a", "b"], "matrix": [[3, 1], [0, 4]]}', "confusion_matrix"),
        ("confusion.json", b"[[3, 1], [0, 4]]", "confusion_matrix"),
        ("table.json", b"[[3, 1, 2], [0, 4, 5]]", "file"),
        ("notes.txt", b"words", "file"),
        ("model.safetensors", SAFETENSORS, "model"),
        ("model.bin", b"\0\1\2\3 weights", "model"),
        ("model.onnx", b"\x08\x07", "model"),
        ("model.skops", zipped(schema__json=b"{}"), "model"),
        ("empty.bin", b"", "model"),
        ("model.pkl", b"whatever", "pickle"),
        ("model.joblib", gzip.compress(b"x", mtime=0), "pickle"),
        ("model.safetensors", pickle.dumps(WEIGHTS), "pickle"),
        ("last", pickle.dumps(WEIGHTS), "file"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_by_name_and_content(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    assert judged(tmp_path, name, data) == kind


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_a_pickle_is_no_model_whatever_it_is_called(tmp_path: Path, protocol: int, pack: object) -> None:
    data = pickle.dumps(WEIGHTS, protocol)
    if pack is bytes or protocol >= 2:  # the first protocols have no mark that the head of a compressed one would show
        assert judged(tmp_path, "model.bin", pack(data)) == "pickle"  # type: ignore[operator]
    assert judged(tmp_path, "model.bin", data, pickle_models=True) == "model"
    assert judged(tmp_path, "weights", data, said="model") == "pickle"
    assert judged(tmp_path, "weights", data, said="file") == "file"


def test_torch_s_format_is_a_pickle_in_a_zip(tmp_path: Path) -> None:
    assert judged(tmp_path, "model.pt", zipped(archive__data__pkl=b"x").replace(b"/pkl", b".pkl")) == "pickle"
    assert judged(tmp_path, "model.pt", zipped(archive__weights=pickle.dumps(WEIGHTS))) == "pickle"
    assert judged(tmp_path, "model.pt", zipped(archive__weights=b"bare bytes")) == "model"
    assert judged(tmp_path, "model.pt", zipped(a=b"x")[:-5]) == "model"  # no zip at all: nothing can be loaded from it


def test_a_kind_that_is_none_is_judged(tmp_path: Path) -> None:
    assert judged(tmp_path, "a.png", b"x", said="picture") == "plot"
    assert judged(tmp_path, "a.png", b"x", said="metrics") == "metrics"


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
    st.integers(0, 5),
)
def test_every_pickle_is_seen(tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(pickle.dumps(value, protocol))
    assert is_pickle(str(path))
