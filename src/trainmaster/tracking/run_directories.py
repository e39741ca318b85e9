"""Shared code of trackers that are directories: a directory for each run, and files that grow by complete records.

A mark is the length of a file when the mirror last stored it. Bytes beyond it were written by a process that died before it
stored the mark. They are cut off before more is written, so that nothing is duplicated.
"""

import errno
import os
import shutil
from pathlib import Path

from trainmaster.home import write_atomic
from trainmaster.ports.tracker import Run, RunGoneError, RunRefusedError, TrackerUnreachableError
from trainmaster.wire.runs import TAG_RUN

_OF_ONE_FILE = (errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)  # its name is the cause, not the disk
_FULL_HINT = "free some space where the tracking directory is"


class RunDirectories:
    """One directory per job below `root`, marked with the run's id: two servers may share a root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, run: Run) -> Path:
        """The run's directory, created if needed. Raises: TrackerUnreachableError."""
        try:
            path = self.root / run.job
            path.mkdir(parents=True, exist_ok=True)
            marker = path / TAG_RUN
            if marker.exists() and marker.read_text() != run.id:  # a job of another server with the same id
                path = self.root / f"{run.job}-{run.id[:8]}"
                path.mkdir(exist_ok=True)
                marker = path / TAG_RUN
            if not marker.exists():
                write_atomic(marker, run.id.encode(), 0o644)
        except OSError as error:
            raise _unwritable(self.root, error) from error
        return path

    def open(self, ref: str) -> Path:
        """The directory of an existing run. Raises: RunGoneError if it was removed."""
        if not self.holds(ref):
            raise RunGoneError(f"{ref} was removed")
        return Path(ref)

    def holds(self, ref: str) -> bool:
        """Whether the directory of a run still exists, here: a home that was restored must not write into that of the lost one.

        Raises: TrackerUnreachableError if it cannot be looked at.
        """
        path = Path(ref)
        try:
            return os.path.samefile(path.parent, self.root) and (path / TAG_RUN).exists()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise TrackerUnreachableError(f"{path} cannot be read: {error.strerror}") from error

    def keep(self, ref: str, path: str, source: Path) -> None:
        """Copy an artifact into the run's `artifacts/`. Raises: RunGoneError, RunRefusedError, TrackerUnreachableError."""
        inside = self.open(ref) / "artifacts"
        target = inside / path
        if ".." in target.parts or not target.is_relative_to(inside):
            raise RunRefusedError(f"{path!r} would be outside its run's directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            shutil.copyfile(source, part)
            os.replace(part, target)
        except OSError as error:
            if error.errno in _OF_ONE_FILE:
                raise RunRefusedError(f"{path!r} cannot be stored: {error.strerror}") from error
            raise _unwritable(target, error) from error


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically. Raises: TrackerUnreachableError."""
    try:
        write_atomic(path, data, 0o644)
    except OSError as error:
        raise _unwritable(path, error) from error


def grow(path: Path, mark: str, data: bytes, head: bytes = b"") -> str:
    """Truncate `path` to `mark` and append `data`, durably. Returns the new mark. `head` begins a new file.

    Raises: RunGoneError if the file is shorter than the mark, TrackerUnreachableError.
    """
    known = int(mark or 0)
    try:
        if known and (not path.exists() or path.stat().st_size < known):
            raise RunGoneError(f"{path} was removed or truncated")
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(known)
            file.seek(known)
            file.write(data if known else head + data)
            file.flush()
            os.fsync(file.fileno())
            return str(file.tell())
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> TrackerUnreachableError:
    return TrackerUnreachableError(f"{path} cannot be written: {error.strerror}", _FULL_HINT)
