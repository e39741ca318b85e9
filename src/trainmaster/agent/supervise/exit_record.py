"""The exit record of this agent: its disk space is reserved at the start, and it is durable before the end is reported."""

from __future__ import annotations

import os
import time

from trainmaster.wire.names import EXIT, EXIT_PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALLOCATED_BYTES = 65536
_PAUSES_S = (0.1, 0.5, 2.0)
_WORDS = ((10, 400), (4, 200), (2, 100), (1, 40), (1, 0))  # (last lines of a rank, characters of each), tried in turn


def allocate(directory: str) -> None:
    """Reserve disk space for the record, so that an end can be recorded on a full disk. Raises: OSError."""
    descriptor = os.open(os.path.join(directory, EXIT_PART), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, ALLOCATED_BYTES)
    finally:
        os.close(descriptor)


def write(directory: str, ended: dict[str, Any]) -> None:
    """Write the record atomically and durably. On a full disk it is shortened to the reserved space. Errors are retried.

    Raises: OSError.
    """
    for pause_s in _PAUSES_S:
        try:
            return _write(directory, ended)
        except OSError:
            time.sleep(pause_s)
    return _write(directory, ended)


def _write(directory: str, ended: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 - `allocate` is called before the ranks run, this after

    data = json.dumps(ended).encode()
    part = os.path.join(directory, EXIT_PART)
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write_all(descriptor, data)
        except OSError:
            data = _shortened(ended)
            _write_all(descriptor, data)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(part, os.path.join(directory, EXIT))
    parent = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _write_all(descriptor: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], done)


def _shortened(ended: dict[str, Any]) -> bytes:
    """The same record with fewer lines, so that it fits into the reserved space."""
    import json  # noqa: PLC0415 - as above

    data = b""
    for lines, width in _WORDS:
        ends: dict[str, list[dict[str, Any]]] = {"ranks": [], "roles": []}
        for kind, shortened in ends.items():
            for rank in ended[kind]:
                last = [line[:width] for line in rank["last_lines"][-lines:]]
                shortened.append({**rank, "last_lines": last, "error": (rank["error"] or "")[:width] or None})
        few = {name: ended[name][-lines * 8 :] for name in ("staged", "kept", "not_kept", "warned", "bad")}
        few["warned"] = [{name: told for name, told in one.items() if name != "data"} for one in few["warned"]]
        few["launch_lines"] = [line[:width] for line in ended["launch_lines"][-lines:]]
        data = json.dumps({**ended, **few, **ends}).encode()
        if len(data) <= ALLOCATED_BYTES:
            break
    return data
