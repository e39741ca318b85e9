"""The lock files of a home (flock), and which process holds a lock that is not released.

A lock is released when its process ends, in any way. A stopped process (SIGSTOP, a debugger) keeps its lock. If that is a
server process, which is revived anyway, it is killed. The holder is known only on Linux. Standard library only.
"""

import contextlib
import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmaster.errors import OperationError
from trainmaster.home import Home

TIMEOUT_S = 60.0  # for another start or stop to finish
LOOK_S = 0.01
_STOPPED_LOOK_S = 1.0  # a process stopped for less than this (by a debugger) is not examined
_MODULE = b"trainmaster."
_LOCKS = Path("/proc/locks")
_LOOKS = 5
_GUARD_S = 1.0


@contextlib.contextmanager
def hold(home: Home, name: str, timeout_s: float = TIMEOUT_S) -> Iterator[int | None]:
    """Hold one of the home's locks; yields the pid of the stopped server process that was killed for it, if there was one.

    Raises: OperationError that names the process which does not release it.
    """
    path, killed = home.lock(name), None
    with contextlib.ExitStack() as stack:
        if not wait_for(_taken(path, stack), _STOPPED_LOOK_S):
            killed = end_stopped_holder(path)
            _set_strangers_aside(path)
            if not wait_for(_taken(path, stack), timeout_s):
                pid = _holder(inode(path))
                hint = f"it is process {pid}; see: ps -fp {pid}" if pid is not None else "look for it with: ps"
                raise OperationError(f"another start or stop of the server on {home.root} does not finish", hint)
        yield killed


def _taken(path: Path, stack: contextlib.ExitStack) -> Callable[[], bool]:
    """A function that tries to take the lock; `stack` releases it."""

    def take() -> bool:
        descriptor = _open(path)
        if _flock(descriptor) and os.fstat(descriptor).st_ino == inode(path):  # else the file was replaced meanwhile
            stack.callback(os.close, descriptor)
            return True
        os.close(descriptor)
        return False

    return take


def _open(path: Path) -> int:
    """Open the lock file, and create it if missing. It can be locked even on a read-only or full disk. Raises: OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _set_strangers_aside(path: Path) -> None:
    """Replace a lock file that another user's process holds: a user who once could read the home must not block us."""
    number = inode(path)
    pid = _holder(number)
    if pid is not None and _user(pid) not in (None, 0, os.geteuid()) and inode(path) == number:
        path.unlink(missing_ok=True)


def _user(pid: int) -> int | None:
    """The effective user of a process; None if unknown. The owner of its directory in /proc may be another user."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[2])
    return None


def end_stopped_holder(path: Path) -> int | None:
    """Kill the stopped server process that holds this lock. Returns its pid, None if there was none."""
    pid = holder(path, inode(path))
    if pid is None or not _is_stopped(pid):
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def holder(path: Path, number: int | None) -> int | None:
    """The pid of our process that holds the lock file with inode `number` in the home of `path`."""
    pid = _holder(number)
    if pid is None:
        return None
    with contextlib.suppress(OSError):
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.startswith(_MODULE) for word in argv) and os.fsencode(path.parent) in argv:
            return pid
    return None


def inode(path: Path) -> int | None:
    """The inode of a file; None if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def guard(lost: Callable[[], bool], end: Callable[[], None]) -> None:
    """Call `end` when `lost` returns true. A daemon thread checks it every second."""

    def look() -> None:
        resting = threading.Event()
        while not lost():
            resting.wait(_GUARD_S)
        end()

    threading.Thread(target=look, name="guard", daemon=True).start()


def is_another(path: Path, number: int | None) -> bool:
    """Whether the file with inode `number` is gone from `path`. An error proves nothing."""
    try:
        return path.stat().st_ino != number
    except FileNotFoundError:
        return True
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll the condition. Returns whether it became true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(LOOK_S)
    return True


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(number: int | None) -> int | None:
    """The pid of the holder, from the kernel's list of locks.

    The kernel returns the list in pages, and a lock released between two pages moves entries. So a single read on a busy
    machine may miss an entry.
    """
    with contextlib.suppress(OSError, ValueError):
        for _ in range(_LOOKS):
            for line in _LOCKS.read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].split(":")[-1] == str(number):
                    return int(fields[4])
    return None


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    return False
