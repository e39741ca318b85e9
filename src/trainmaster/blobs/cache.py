"""This machine's cache of a remote store: bounded, least recently used first, safe for several processes.

Below its root it has the layout of a store that is a directory, so that agents lay out and restore from it in the same way.
A copy that the store does not have yet, or that is being read, is never evicted.
"""

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainmaster.blobs.names import PART, check_name
from trainmaster.wire.names import MANIFEST, part_lock, part_stored

_YOUNG_S = 600.0  # code that a start received moments ago is not evicted
_ABANDONED_S = 86400.0  # a copy that was never uploaded, and whose agent is gone


class _Unit(NamedTuple):
    """Something that is evicted as a whole: a file, or one part of a checkpoint."""

    used_s: float
    path: str
    bytes: int
    part: bool  # of a checkpoint: a directory with a lock beside it


class Cache:
    """A directory of at most `max_bytes`, enforced by `trim`."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root, self.max_bytes = root, max_bytes
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        """The path of a blob's copy, which may not exist. Raises: UsageError."""
        return self.root / check_name(name)

    def has(self, name: str) -> bool:
        """Whether a copy exists. Marks it as used now."""
        path = self.path(name)
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return path.is_file()

    def write(self, name: str, chunks: Iterator[bytes], good: Callable[[Path], bool] = lambda path: True) -> Path | None:
        """Store a copy atomically; None if it is not `good`. Not synced: a copy can be fetched again."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name[:100]}.{os.getpid()}-{threading.get_ident():x}{PART}")
        try:
            with part.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            if not good(part):
                return None
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def forget(self, name: str) -> None:
        """Delete one copy, or all below a prefix."""
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                os.unlink(part_stored(str(path)))

    def trim(self) -> int:
        """Evict the least recently used copies until the bound holds. Returns the number of bytes freed."""
        with self._lock:
            units = sorted(self._units())
            over = sum(unit.bytes for unit in units) - self.max_bytes
            freed = 0
            for unit in units:
                if freed >= over:
                    break
                if self._give_up(unit):
                    freed += unit.bytes
            return freed

    def size_bytes(self) -> int:
        """Total size of the cache."""
        return sum(unit.bytes for unit in self._units())

    def _units(self) -> Iterator[_Unit]:
        for kind in ("code", "provenance", "artifacts"):
            for path, status in _files(self.root / kind):
                yield _Unit(status.st_mtime, path, status.st_size, False)
        for manifest in (self.root / "checkpoints").glob(f"*/*/*/{MANIFEST}"):
            with suppress(OSError):
                size = sum(status.st_size for _, status in _files(manifest.parent))
                yield _Unit(manifest.stat().st_mtime, str(manifest.parent), size, True)

    def _give_up(self, unit: _Unit) -> bool:
        old_s = time.time() - unit.used_s
        if unit.part:
            return self._give_up_part(unit.path, old_s)
        if "/artifacts/" in unit.path[len(str(self.root)) :] and not os.path.exists(part_stored(unit.path)):
            if old_s < _ABANDONED_S:
                return False
        elif old_s < _YOUNG_S and unit.path.startswith(f"{self.root}/code/"):
            return False
        for path in (unit.path, part_stored(unit.path)):
            with suppress(FileNotFoundError):
                os.unlink(path)
        return True

    def _give_up_part(self, place: str, old_s: float) -> bool:
        if not os.path.exists(part_stored(place)) and old_s < _ABANDONED_S:
            return False
        with open(part_lock(place), "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            shutil.rmtree(place, ignore_errors=True)
            for path in (part_stored(place), part_lock(place)):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(place))
        return True


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below, without temporary files and our own markers. Files that vanish meanwhile are left out."""
    for directory, _, names in os.walk(root):
        for name in names:
            if not name.endswith((PART, ".stored")):
                path = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    yield path, os.lstat(path)
