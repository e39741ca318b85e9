"""SHA-256 of a work directory's files, remembered from one submit to the next.

A remembered digest counts only while size, times and inode are the same; one of a file that had changed just before it was
digested is not remembered, since a second change within the clock's grain would not show.
"""

import hashlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

from trainmaster.errors import OperationError

_CHUNK = 1024 * 1024
_GRAIN_NS = 100_000_000  # coarser than any file system's clock in use
_TRIES = 5

Key = tuple[int, int, int, int]  # bytes, mtime_ns, ctime_ns, inode


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/trainmaster`, else `~/.cache/trainmaster`."""
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named) / "trainmaster" if named else Path.home() / ".cache" / "trainmaster"


class Digests:
    """The digests of one work directory. `save` writes those asked for since it was made."""

    def __init__(self, root: str) -> None:
        self._root = root
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        self._file = cache_directory() / "digests" / f"{name}.json"
        self._known = self._load()
        self._asked: dict[str, list[int | str]] = {}

    def _load(self) -> dict[str, list[int | str]]:
        try:
            value = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def of(self, path: str) -> tuple[str, os.stat_result]:
        """Digest and stat of a regular file, that belong together.

        Raises: OSError when it cannot be read, OperationError when it keeps changing.
        """
        full = f"{self._root}/{path}"
        status = os.stat(full, follow_symlinks=False)
        known = self._known.get(path)
        if isinstance(known, list) and len(known) == 5 and tuple(known[:4]) == _key(status):
            self._asked[path] = known
            return str(known[4]), status
        for _ in range(_TRIES):
            digest, before, after = _digest(full)
            if _key(before) == _key(after):
                if max(after.st_mtime_ns, after.st_ctime_ns) < time.time_ns() - _GRAIN_NS:
                    self._asked[path] = [*_key(after), digest]
                return digest, after
        hint = "Submit again when nothing writes to it, or have git ignore it."
        raise OperationError(f"{full} changes while it is copied", hint)

    def save(self) -> None:
        """Remember. A cache that cannot be written is none."""
        if self._asked == self._known:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor, part = tempfile.mkstemp(dir=self._file.parent)
            with os.fdopen(descriptor, "w") as file:
                json.dump(self._asked, file, separators=(",", ":"))
            os.replace(part, self._file)
        except OSError:
            return


def _key(status: os.stat_result) -> Key:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _digest(path: str) -> tuple[str, os.stat_result, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(0, "not a regular file any more", path)
        digest = hashlib.sha256()
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
        return digest.hexdigest(), before, os.fstat(descriptor)
    finally:
        os.close(descriptor)
