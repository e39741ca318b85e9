"""Builds what runs outside our own environment: the agent as one file, and the SDK as a directory for a job's path.

`python3 agent.pyz DIRECTORY` starts the agent with any Python from 3.9 on. The archive is stored, not compressed, and holds
byte code for the Python that builds it beside the sources. That halves the start time; another Python uses the sources. This
module is not part of the archive.

The SDK's directory holds `trainmaster/sdk` and `trainmaster/wire`, and no `trainmaster/__init__.py`. Python takes such a
namespace package only if the rest of its path has no `trainmaster`, so the directory hides nothing of a job.
"""

from __future__ import annotations

import hashlib
import io
import os
import py_compile
import tempfile
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MAIN = "from trainmaster.agent.__main__ import main\n\nmain()\n"
_INIT = '"""The part of Trainmaster that runs beside the ranks."""\n'
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the build is reproducible
_ROOMS = ("agent", "wire")
_SDK_ROOMS = ("sdk", "wire")


def build(target: str) -> bool:
    """Write the single-file agent atomically. Returns False if an identical one was already there.

    Raises: OSError.
    """
    target = os.fspath(target)
    data = _bytes(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if _content(target) == data:
        return False
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    part = f"{target}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, target)
    return True


def lay_out_sdk(root: str) -> str:
    """Write the directory of the SDK below `root`, unless it is there already; returns its path.

    Jobs of an earlier version may still import from another one. Raises: OSError.
    """
    directory = sdk_directory(root)
    for path, data in _sdk_files():
        target = os.path.join(directory, "trainmaster", path)
        if _content(target) != data:  # absent, or cut short by a power failure
            os.makedirs(os.path.dirname(target), exist_ok=True)
            part = f"{target}.{os.getpid()}.part"
            with open(part, "wb") as file:
                file.write(data)
            os.rename(part, target)
    return directory


def sdk_directory(root: str) -> str:
    """The path of the SDK's directory below `root`: the same for the same files."""
    digest = hashlib.sha256()
    for path, data in _sdk_files():
        digest.update(f"{path} {len(data)}\n".encode() + data)
    return os.path.join(os.path.abspath(root), digest.hexdigest()[:16])


def _sdk_files() -> list[tuple[str, bytes]]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [(path, _content(os.path.join(package, path)) or b"") for path in _modules(package, _SDK_ROOMS)]


def _content(path: str) -> Optional[bytes]:
    """None if there is no such file. Raises: OSError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _bytes(package: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive, tempfile.TemporaryDirectory() as scratch:
        _add(archive, scratch, "__main__.py", _MAIN.encode())
        _add(archive, scratch, "trainmaster/__init__.py", _INIT.encode())
        for path in _modules(package, _ROOMS):
            with open(os.path.join(package, path), "rb") as file:
                _add(archive, scratch, f"trainmaster/{path}", file.read())
    return buffer.getvalue()


def _modules(package: str, rooms: tuple[str, ...]) -> list[str]:
    """The modules of the rooms, relative to `package`, sorted."""
    found: list[str] = []
    for room in rooms:
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
