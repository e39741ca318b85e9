"""SHA-256 digests of a work directory's files, cached from one submit to the next.

A cached digest is valid only while size, times and inode are the same. A file that changed in the minute before it was digested
is not cached. A second change within the clock's resolution would not be noticed; nor would one through a memory mapping before
the kernel has written the first one to the disk, which it does within half a minute. It never does in a file system in memory.

A file that only grows, such as a log, is taken as it was when it was opened.
"""

import hashlib
import json
import os
import stat
import threading
import time
from functools import cache
from pathlib import Path

from trainmaster.errors import ChangedError

_CHUNK = 1024 * 1024
_SETTLED_NS = 60_000_000_000  # longer than a changed page stays in memory alone
_IN_MEMORY = ("tmpfs", "ramfs")
_TRIES = 5
_PAUSE_S = 0.05  # before the second try; longer before each further one

Key = tuple[int, int, int, int]  # bytes, mtime_ns, ctime_ns, inode


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/trainmaster`, else `~/.cache/trainmaster`."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) / "trainmaster" if named else Path.home() / ".cache" / "trainmaster"


class Digests:
    """The digests of one directory. `save` writes the cache; `purpose` separates caches of the same directory."""

    def __init__(self, root: str, purpose: str = "") -> None:
        self.root = root
        name = hashlib.sha256(os.fsencode(f"{root}\0{purpose}" if purpose else root)).hexdigest()[:24]
        self._file = cache_directory() / "digests" / f"{name}.json"
        self._known: dict[str, list[int | str]] = {}
        self._asked: dict[str, list[int | str]] = {}
        self._new = False
        self._loading: threading.Thread | None = threading.Thread(target=self._load, name="digests")
        self._loading.start()  # loads while the caller lets git list the directory

    def _load(self) -> None:
        try:
            value = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(value, dict) and all(type(known) is list and len(known) == 5 for known in value.values()):
            self._known = value

    def remembered(self, path: str, seen: os.stat_result) -> str | None:
        """The cached digest of a file that has not changed since; `seen` is a recent stat result."""
        known = self._known.get(path)
        if (
            known is not None
            and known[1] == seen.st_mtime_ns
            and known[0] == seen.st_size
            and known[2] == seen.st_ctime_ns
            and known[3] == seen.st_ino
        ):
            self._asked[path] = known
            return str(known[4])
        return None

    def ready(self) -> None:
        """Wait until the cache is loaded."""
        if self._loading is not None:
            self._loading.join()
            self._loading = None

    def of(self, path: str, seen: os.stat_result | None = None) -> tuple[str, os.stat_result]:
        """The digest of a regular file and the stat result that belongs to it; `seen` is a recent stat result.

        Raises: OSError when it cannot be read, ChangedError when it keeps changing.
        """
        self.ready()
        status = os.stat(f"{self.root}/{path}", follow_symlinks=False) if seen is None else seen
        remembered = self.remembered(path, status)
        if remembered is not None:
            return remembered, status
        self._new = True
        full = f"{self.root}/{path}"
        for tried in range(_TRIES):
            time.sleep(_PAUSE_S * tried)
            read = _Read(full)
            if read.unchanged:
                settled = max(read.after.st_mtime_ns, read.after.st_ctime_ns) < time.time_ns() - _SETTLED_NS
                if settled and read.after.st_dev not in _in_memory():
                    self._asked[path] = [*_key(read.after), read.sha256]
                return read.sha256, read.after
            if read.consistent:
                return read.sha256, read.before
        raise ChangedError(f"{full} changes while it is read", "Submit again when nothing writes to it.")

    def save(self) -> None:
        """Write the cache. An unwritable cache is ignored."""
        if not self._new and len(self._asked) == len(self._known):
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            import tempfile  # noqa: PLC0415  # most submits have nothing new to write

            descriptor, part = tempfile.mkstemp(dir=self._file.parent)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(self._asked, file, separators=(",", ":"))
                os.replace(part, self._file)
            except OSError:  # a full disk: leave nothing behind, or each submit would add to it
                os.unlink(part)
        except OSError:
            return


@cache
def _in_memory() -> frozenset[int]:
    """The devices of the file systems in memory that are mounted; none on a system that does not tell."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return frozenset()
    numbers = (mount[2].split(":") for mount in mounts if mount[mount.index("-") + 1] in _IN_MEMORY)
    return frozenset(os.makedev(int(major), int(minor)) for major, minor in numbers)


def _key(status: os.stat_result) -> Key:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


class _Read:
    """One reading of a file: its digest, and the stat results before and after. Raises: OSError."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self.before = os.fstat(descriptor)
            if not stat.S_ISREG(self.before.st_mode):
                raise OSError(0, "not a regular file any more", path)
            self.sha256, size = _beginning(descriptor, self.before.st_size)
            more = os.pread(descriptor, 1, size)
            self.after = os.fstat(descriptor)
            self.unchanged = _key(self.before) == _key(self.after)
            if self.unchanged and (more or size != self.before.st_size):  # in /proc; some files there never end
                raise OSError(0, "its content is longer or shorter than its size says", path)
            # Other keys, but the same bytes at a second reading: it grew, or another file was renamed over it.
            again = self.unchanged or _beginning(descriptor, self.before.st_size) == (self.sha256, self.before.st_size)
            self.consistent = again
        finally:
            os.close(descriptor)


def _beginning(descriptor: int, size: int) -> tuple[str, int]:
    """The digest of the first `size` bytes, and how many there were."""
    digest, done = hashlib.sha256(), 0
    while done < size and (chunk := os.pread(descriptor, min(_CHUNK, size - done), done)):
        digest.update(chunk)
        done += len(chunk)
    return digest.hexdigest(), done
