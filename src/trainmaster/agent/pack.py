"""Builds the agent as one file, `agent.pyz`: `python3 agent.pyz DIRECTORY` starts it with any Python from 3.9 on.

The archive is stored, not compressed, and holds byte code for the Python that builds it beside the sources. That halves
the start time; another Python uses the sources. This module is not part of the archive.
"""

from __future__ import annotations

import io
import os
import py_compile
import tempfile
import zipfile

_MAIN = "from trainmaster.agent.__main__ import main\n\nmain()\n"
_INIT = '"""The part of Trainmaster that runs beside the ranks."""\n'
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the build is reproducible
_ROOMS = ("agent", "wire")


def build(target: str) -> bool:
    """Write the single-file agent atomically. Returns False if an identical one was already there.

    Raises: OSError.
    """
    target = os.fspath(target)
    data = _bytes(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        with open(target, "rb") as file:
            if file.read() == data:
                return False
    except FileNotFoundError:
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    part = f"{target}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, target)
    return True


def _bytes(package: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive, tempfile.TemporaryDirectory() as scratch:
        _add(archive, scratch, "__main__.py", _MAIN.encode())
        _add(archive, scratch, "trainmaster/__init__.py", _INIT.encode())
        for path in _modules(package):
            with open(os.path.join(package, path), "rb") as file:
                _add(archive, scratch, f"trainmaster/{path}", file.read())
    return buffer.getvalue()


def _modules(package: str) -> list[str]:
    """The modules of the archive, relative to `package`, sorted."""
    found: list[str] = []
    for room in _ROOMS:
        for folder, _, names in os.walk(os.path.join(package, room)):
            found += [os.path.relpath(os.path.join(folder, name), package) for name in names if name.endswith(".py")]
    own = os.path.relpath(os.path.abspath(__file__), package)
    return sorted(path for path in found if path != own)


def _add(archive: zipfile.ZipFile, scratch: str, name: str, source: bytes) -> None:
    """Add one module: its source, and byte code that is never checked against the source."""
    plain, compiled = os.path.join(scratch, "module.py"), os.path.join(scratch, "module.pyc")
    with open(plain, "wb") as file:
        file.write(source)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(plain, compiled, dfile=name, doraise=True, invalidation_mode=unchecked)
    with open(compiled, "rb") as file:
        archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), file.read())
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
