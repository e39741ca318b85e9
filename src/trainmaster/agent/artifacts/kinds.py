"""Determines the kind of an artifact: from the program, else from its name and content. Nothing in it is ever executed.

A model file that is a pickle gets the kind "pickle", because loading it runs any code in it. Pickles are recognized by name,
by their opcodes, inside a zip (torch's own format), and behind a compression. This prevents passing on an unsafe file by
mistake; it is not a scanner against an attacker that hides code.
"""

from __future__ import annotations

import json
import os

from trainmaster.agent.files import formats
from trainmaster.wire.names import ARTIFACT_KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_BY_SUFFIX = {
    "plot": (".png", ".svg", ".html", ".htm", ".jpg", ".jpeg", ".webp", ".gif", ".pdf"),
    "metrics": (".csv", ".tsv", ".jsonl", ".ndjson"),
    "model": (
        ".safetensors", ".onnx", ".gguf", ".skops", ".keras", ".h5", ".hdf5", ".tflite", ".ubj", ".pt", ".pth", ".bin", ".ckpt",
    ),
}  # fmt: skip
_PICKLED = (".pkl", ".pickle", ".p", ".joblib", ".dill", ".cloudpickle")  # by convention, only pickles have such names
_JSON_MAX_BYTES = 4 * 1024 * 1024
_COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda", b"BZh", b"\xfd7zXZ\x00")
_HEAD_BYTES = 65536
_LZMA_MAX_BYTES = 128 * 1024 * 1024  # the highest compression level needs 65 MiB


def kind_of(path: str, name: str, said: Optional[str], pickle_models: bool) -> str:
    """One of `ARTIFACT_KINDS`, or "pickle" for a model that is a pickle while these are not allowed. Raises: OSError.

    `path`: where the bytes are, which do not change any more. `name`: the artifact's name. `said`: the kind by the program.
    """
    suffix = os.path.splitext(name)[1].lower()
    kind = said if said in ARTIFACT_KINDS else _by_name(path, suffix)
    if kind == "model" and not pickle_models and (suffix in _PICKLED or is_pickle(path)):
        return "pickle"
    return kind


def is_pickle(path: str) -> bool:
    """Whether loading the file as a model would unpickle something. Raises: OSError."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"PK\x03\x04"):
        return _zip_has_pickle(path)
    if head.startswith(_COMPRESSED):
        return _begins_as_pickle(_decompressed(head))
    if _begins_as_pickle(head):
        return True
    return bool(head) and formats.is_bare_pickle(path)  # the first protocols have no magic bytes


def _by_name(path: str, suffix: str) -> str:
    if suffix in _PICKLED:
        return "model"
    if suffix == ".json":
        return _of_json(path)
    return next((kind for kind, suffixes in _BY_SUFFIX.items() if suffix in suffixes), "file")


def _of_json(path: str) -> str:
    """The kind of a JSON file: a confusion matrix, metrics (numbers by name, perhaps grouped), or any other file."""
    if os.path.getsize(path) > _JSON_MAX_BYTES:
        return "file"
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (ValueError, RecursionError):
        return "file"
    matrix = value.get("matrix", value.get("confusion_matrix")) if isinstance(value, dict) else value
    if _is_square(matrix):
        return "confusion_matrix"
    return "metrics" if isinstance(value, dict) and value and _numbers(value) else "file"


def _is_square(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(row, list) and len(row) == len(value) and all(_is_number(cell) for cell in row) for row in value)


def _numbers(value: dict[str, Any]) -> bool:
    inner = [item for group in value.values() for item in (group.values() if isinstance(group, dict) else [group])]
    return bool(inner) and all(_is_number(item) for item in inner)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _begins_as_pickle(head: bytes) -> bool:
    return len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def _zip_has_pickle(path: str) -> bool:
    """Whether a member has a pickle's name or begins like a pickle: torch's `data.pkl` under any name."""
    import zipfile  # noqa: PLC0415  # heavy, and rarely needed
    import zlib  # noqa: PLC0415  # likewise

    try:
        members = formats.zip_members(path)
        if members is None:
            return True  # too large to examine
        with zipfile.ZipFile(path) as archive:
            for member in members:
                if member.filename.lower().endswith(_PICKLED):
                    return True
                with archive.open(member) as content:
                    if _begins_as_pickle(content.read(2)):
                        return True
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, ValueError, EOFError):
        return False  # not a zip from which a model could be loaded
    return False


def _decompressed(head: bytes) -> bytes:
    """The first bytes after decompression with zlib, gzip, bzip2 or xz; empty if it is none of these."""
    import bz2  # noqa: PLC0415  # only for compressed models
    import lzma  # noqa: PLC0415  # likewise
    import zlib  # noqa: PLC0415  # likewise

    try:
        if head.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(head, 16)
        if head.startswith(b"\xfd7zXZ"):
            return lzma.LZMADecompressor(memlimit=_LZMA_MAX_BYTES).decompress(head, 16)
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(head, 16)
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError):
        return b""
