"""The directory of one attempt on this node, as its agent uses it."""

from __future__ import annotations

import os

from trainmaster.wire import names


class AttemptDirectory:
    """`path` names it. The descriptor stays with it: when it was removed, a new one of that name is not this attempt's."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = _opened(path)

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    @property
    def removed(self) -> bool:
        """Whether it was removed. One that was moved, or cannot be examined, was not removed."""
        try:
            return os.fstat(self._descriptor).st_nlink == 0
        except OSError:
            return False

    @property
    def flags_path(self) -> str:
        """The file that the SDK polls, and in which it notes what it could not write."""
        return self.file(names.SDK_FLAGS)

    def create_flags(self) -> None:
        """Create the file that the SDK polls. Raises: OSError."""
        descriptor = os.open(self.flags_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(descriptor, b"0\0\0")
        os.close(descriptor)

    def has_flag(self, offset: int) -> bool:
        """Whether the SDK has set a flag."""
        try:
            descriptor = os.open(self.flags_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return os.pread(descriptor, 1, offset) == b"1"
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def set_flag(self, offset: int, value: bytes) -> None:
        """Set one flag for the SDK, as far as that is possible."""
        try:  # non-blocking: the program may have put a pipe in its place
            descriptor = os.open(self.flags_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # the file was removed; SIGTERM still stops the program
        try:
            os.pwrite(descriptor, value, offset)
        except OSError:
            return  # the path is not a regular file any more
        finally:
            os.close(descriptor)


def _opened(path: str) -> int:
    """A descriptor of the directory, open while this process lives; -1 if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
