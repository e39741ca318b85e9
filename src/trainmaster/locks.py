"""The locks of a home: files that processes hold by flock, and who holds one when it does not come free.

A lock goes with its process, however that ends. One that is stopped (SIGSTOP, a debugger) holds on to it: where it is a
process of the server itself, which others bring back, it is ended. Linux; elsewhere nobody is named. Standard library only.
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

TIMEOUT_S = 60.0  # another start or stop at work
LOOK_S = 0.01
_STOPPED_LOOK_S = 1.0  # how long one may be stopped before it is looked at: a debugger's short halt is none
_MODULE = b"trainmaster."
_LOCKS = Path("/proc/locks")
_LOOKS = 5
_GUARD_S = 1.0


@contextlib.contextmanager
def hold(home: Home, name: str, timeout_s: float = TIMEOUT_S) -> Iterator[None]:
    """Hold one of the home's locks. Raises: OperationError, naming who does not let go of it."""
    path = home.lock(name)
    with contextlib.ExitStack() as stack:
        if not wait_for(_taken(path, stack), _STOPPED_LOOK_S):
            end_stopped_holder(path)
            _set_strangers_aside(path)
            if not wait_for(_taken(path, stack), timeout_s):
                pid = _holder(inode(path))
                hint = f"it is process {pid}; see: ps -fp {pid}" if pid is not None else "look for it with: ps"
                raise OperationError(f"another start or stop of the server on {home.root} does not finish", hint)
        yield


def _taken(path: Path, stack: contextlib.ExitStack) -> Callable[[], bool]:
    """Whether the lock could be had, asked again and again; `stack` lets go of it."""

    def take() -> bool:
        descriptor = _open(path)
        if _flock(descriptor) and os.fstat(descriptor).st_ino == inode(path):  # else a file that was set aside meanwhile
            stack.callback(os.close, descriptor)
            return True
        os.close(descriptor)
        return False

    return take


def _open(path: Path) -> int:
    """The lock file, made where it is not there. One on a disk that takes nothing can be held all the same. Raises: OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _set_strangers_aside(path: Path) -> None:
    """Put a new file in the place of a lock that another user holds: who could once read the home keeps nobody waiting."""
    number = inode(path)
    pid = _holder(number)
    if pid is not None and _user(pid) not in (None, 0, os.geteuid()) and inode(path) == number:
        path.unlink(missing_ok=True)


def _user(pid: int) -> int | None:
    """Whom a process acts as; None where that cannot be told. The owner of its directory in /proc may be another."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[2])
    return None


def end_stopped_holder(path: Path) -> int | None:
    """Kill the server process that holds this lock and is stopped; its pid if there was one."""
    pid = holder(path, inode(path))
    if pid is None or not _is_stopped(pid):
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def holder(path: Path, number: int | None) -> int | None:
    """The process of ours that holds the lock file with inode `number` in the home of `path`."""
    pid = _holder(number)
    if pid is None:
        return None
    with contextlib.suppress(OSError):
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.startswith(_MODULE) for word in argv) and os.fsencode(path.parent) in argv:
            return pid
    return None


def inode(path: Path) -> int | None:
    """The inode of a file; None where there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def guard(lost: Callable[[], bool], end: Callable[[], None]) -> None:
    """Call `end` once `lost`, looked at every second on a thread of its own that goes with the process."""

    def look() -> None:
        resting = threading.Event()
        while not lost():
            resting.wait(_GUARD_S)
        end()

    threading.Thread(target=look, name="guard", daemon=True).start()


def is_another(path: Path, number: int | None) -> bool:
    """Whether the file that had inode `number` is gone from `path`. What cannot be looked at proves nothing."""
    try:
        return path.stat().st_ino != number
    except FileNotFoundError:
        return True
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look until it holds; whether it did in time."""
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
    """Who holds it, as the kernel lists it.

    It hands the list out in parts of a page, and what others let go of between two parts moves an entry past the reader:
    so one look, on a busy machine, may miss it.
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
