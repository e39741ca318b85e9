"""What is at a path that a job declares as data: its files, a stamp by which a change is seen, and a digest."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAME, CHANGED, UNKNOWN = "same", "changed", "unknown"  # what an agent saw of an entry when its attempt began, since the submit
ENTRIES_MAX = 200_000  # files, directories and links that are looked at
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a link to nothing, or a file that is gone meanwhile
_READ_BYTES = 1024 * 1024


class Found(NamedTuple):
    """The files at a path, and what was not looked at."""

    files: dict[str, os.stat_result]  # relative path -> status, sorted; of a single file, its name
    unread: list[str]  # directories and files that cannot be read
    special: list[str]  # pipes, sockets and devices
    bare: list[str]  # links that lead nowhere, and, with a slash, directories that are empty or not followed in a circle
    cut: bool  # there are more than `ENTRIES_MAX` entries


def find(path: str) -> Found:
    """The files below a directory, or the one at `path`. Links are followed, but in no circle. Raises: OSError."""
    root = path if os.path.isdir(path) else os.path.dirname(path)
    found = Found({}, [], [], [], False)
    names = [os.path.basename(path)]
    if root == path:
        listed = list(_followed(root, found.unread))
        found, names = found._replace(cut=None in listed), sorted(name for name in listed if name is not None)
    for name in names:
        if name.endswith("/"):
            found.bare.append(name)
            continue
        try:
            status = os.stat(os.path.join(root, name))
        except OSError as error:
            if error.errno not in _LEADS_NOWHERE:
                found.unread.append(name)
            elif os.path.lexists(os.path.join(root, name)):
                found.bare.append(name)
            continue
        if stat.S_ISREG(status.st_mode):
            found.files[name] = status
        else:
            found.special.append(name)
    return found


def listing(found: Found) -> str:
    """A digest of the names of all that is there besides files, as a program sees that lists a directory; "" if nothing is."""
    import hashlib  # noqa: PLC0415 - only for data

    lines = [*(f"{name}\0\n" for name in found.bare), *(f"{name}\0special\n" for name in found.special)]
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest() if lines else ""


def stamp(files: dict[str, os.stat_result], strict: bool = False) -> str:
    """A digest of names, sizes and times of modification; if `strict`, also of inodes and of times of change.

    Files that were not touched have equal ones, on one file system. The strict one sees other bytes of the same size and time
    of modification. A change of permissions or links changes it, too: if it differs, only the bytes tell. Bytes written through
    a memory mapping need not change any of it, and are not seen.
    """
    import hashlib  # noqa: PLC0415 - only for data

    lines = (
        f"{name}\0{status.st_size} {status.st_mtime_ns}{f' {status.st_ctime_ns} {status.st_ino}' if strict else ''}\n"
        for name, status in files.items()
    )
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def digest(path: str, files: dict[str, os.stat_result], told: Callable[[str, os.stat_result], str]) -> str:
    """One over all names and what is `told` of each file. The name of a single file is not part of its content."""
    import hashlib  # noqa: PLC0415 - only for data

    whole, named = hashlib.sha256(), os.path.isdir(path)
    for name, status in files.items():
        whole.update(f"{name if named else ''}\0{told(name, status)}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def sha256(path: str) -> str:
    """The SHA-256 of a file's bytes. Raises: OSError, also if it is no regular file."""
    import hashlib  # noqa: PLC0415 - only for data

    found = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file any more", path)
        while chunk := file.read(_READ_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _followed(root: str, unread: list[str]) -> Iterator[str | None]:
    """Relative paths of all but directories, and with a slash of those in which nothing is followed.

    None at the end if not all were looked at.
    """
    seen, left = 0, [("", frozenset((_identity(root),)))]
    while left:
        inside, above = left.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, inside)), key=lambda entry: entry.name)
        except OSError:
            unread.append(inside)
            continue
        if inside and not entries:
            yield f"{inside}/"
        further = []
        for entry in entries:
            if seen == ENTRIES_MAX:
                yield None
                return
            seen += 1
            name = os.path.join(inside, entry.name)
            try:
                directory = entry.is_dir()
            except OSError:
                directory = False  # a link that cannot be followed
            if not directory:
                yield name
                continue
            identity = _identity(os.path.join(root, name))
            if identity in above:
                yield f"{name}/"
            else:
                further.append((name, above | {identity}))
        left += reversed(further)


def _identity(directory: str) -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino
