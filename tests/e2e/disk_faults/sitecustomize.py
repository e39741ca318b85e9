"""A disk that fails at one place of the code: patched calls of `os` and `open` in the server's processes and the agents.

Python imports this by its name at start when its directory is on PYTHONPATH. $DISK_FAULTS is a directory of the test:

- `sites`: each place that made a call is appended once by each process: `agent/files/stage.py:132:open`.
- `active`: the fault, as JSON: {"site": ..., "error": "EIO" | "short", "seconds": 1.5}. From the first call at that place on
  every call there fails for so long, in every process; then the disk is well again.
- `hit`: is there once the fault was met.
"""

import builtins
import contextlib
import errno
import io
import json
import os
import stat
import sys
import time

DIRECTORY = os.environ.get("DISK_FAULTS")
PACKAGE = os.sep + "trainmaster" + os.sep
DEPTH = 12  # frames between the library's call and ours: pathlib, shutil, json
READS = ("stat", "lstat", "scandir", "listdir", "read", "readlink")
CHANGES = ("write", "pwrite", "fsync", "rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir", "ftruncate",
           "posix_fallocate", "sendfile", "copy_file_range", "chmod", "utime")  # fmt: skip

real = {name: getattr(os, name) for name in (*READS, *CHANGES, "open") if hasattr(os, name)}
real_open = builtins.open
seen: set[str] = set()
fault: dict[str, object] = {}
fault_ns = 0


def site_of(operation):
    """The line of our own code that asked for this, or None."""
    frame = sys._getframe(2)
    for _ in range(DEPTH):
        if frame is None:
            return None
        name = frame.f_code.co_filename
        at = name.rfind(PACKAGE)
        if at >= 0 and "site-packages" not in name[at:]:
            return f"{name[at + len(PACKAGE) :]}:{frame.f_lineno}:{operation}"
        frame = frame.f_back
    return None


def note(site):
    """Tell once that this place exists."""
    if site in seen:
        return
    seen.add(site)
    descriptor = real["open"](os.path.join(DIRECTORY, "sites"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        real["write"](descriptor, (site + "\n").encode())
    finally:
        os.close(descriptor)


def error_at(site):
    """What the disk answers here and now; None where it is well."""
    global fault, fault_ns
    try:
        changed_ns = real["stat"](os.path.join(DIRECTORY, "active")).st_mtime_ns
    except OSError:
        return None
    if changed_ns != fault_ns:
        with real_open(os.path.join(DIRECTORY, "active")) as file:
            fault, fault_ns = json.load(file), changed_ns
    if fault.get("site") != site:
        return None
    hit = os.path.join(DIRECTORY, "hit")
    with contextlib.suppress(FileExistsError):
        os.close(real["open"](hit, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    over = time.time() - real["stat"](hit).st_mtime > fault["seconds"]
    return None if over else fault["error"]


def on_disk(given):
    """Whether this is about a file or a directory: pipes and sockets are no disk."""
    if not given or isinstance(given[0], bool) or not isinstance(given[0], int):
        return True
    mode = real["stat"](given[0]).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def patched(name, call):
    def faulty(*given, **named):
        site = site_of(name)
        if site is not None and on_disk(given):
            note(site)
            error = error_at(site)
            if error == "short" and len(given) > 1 and isinstance(given[1], (bytes, bytearray, memoryview)):
                return call(given[0], given[1][: max(1, len(given[1]) // 2)], *given[2:], **named)
            if error is not None and error != "short":
                number = getattr(errno, error)
                raise OSError(number, os.strerror(number), given[0] if given and isinstance(given[0], str) else None)
        return call(*given, **named)

    return faulty


if DIRECTORY:
    for name, call in real.items():
        setattr(os, name, patched(name, call))
    builtins.open = io.open = patched("open", real_open)
    for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        supported |= {getattr(os, name) for name, call in real.items() if call in supported}
