"""Gathers the code copy of a work directory at submit: a tree of digests, and the source of each object.

Files that the job itself writes (matched by its checkpoint path or artifact globs) are not part of it; see
`agent.launch.work_directory`.
"""

import gc
import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trainmaster.agent.files.globs import Glob
from trainmaster.client.code_copy import private
from trainmaster.client.code_copy.digests import Digests
from trainmaster.client.code_copy.git import Differ, Patch
from trainmaster.client.code_copy.listing import MIB, Limits, Listing, check_fresh, is_junk, list_directory
from trainmaster.errors import ChangedError, OperationError, TooLargeError
from trainmaster.wire.code import Entry, Tree

__all__ = ["Gathered", "Limits", "gather", "pack_zip"]

_LINKS_MAX = 20_000
_NOTES_MAX = 20


class Gathered(NamedTuple):
    """A gathered work directory. `notes` are messages for the user."""

    tree: Tree
    sources: dict[str, str]  # absolute paths by SHA-256
    git_commit: str | None
    git_dirty: bool
    git_patch: Patch | None
    files: int
    bytes: int
    links: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def linked(self) -> int:
        """How many paths are linked instead of copied."""
        return len(self.links)


def gather(workdir: Path, limits: Limits | None = None, own: Sequence[str] = (), include: Sequence[str] = ()) -> Gathered:
    """Gather the code copy of `workdir`. `own`: globs of files that the job will write (checkpoint path, artifacts).

    Files that may hold credentials are left out, unless git tracks them, or `include` names them or their directory.
    Raises: TooLargeError that lists the largest paths, OperationError if the directory does not exist.
    """
    root = os.path.abspath(workdir)
    if root == "/":
        raise TooLargeError(
            "the work directory is /, which is the whole machine",
            "Go to the program's own directory, name it with --workdir, or use --in-place.",
        )
    if not os.path.isdir(root):
        raise OperationError(f"the work directory {root} is not a directory", "Name it with --workdir or `workdir:`.")
    limits = limits or Limits()
    with _nothing_collected():
        digests = Digests(root)
        listing = list_directory(root, limits, digests)
        _set_private_aside(listing, include)
        differ = Differ(root) if listing.commit is not None and listing.dirty else None
        _set_own_aside(root, listing, {pattern: Glob(pattern, root) for pattern in own})
        collected = _Collected(root, listing, limits)
        collected.add_files(digests)
        collected.add_links()
        return collected.gathered(differ.patch() if differ is not None else None)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Pause the garbage collector: everything made here is kept, and each pass would walk the whole heap of a notebook."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _set_private_aside(listing: Listing, include: Sequence[str]) -> None:
    """Take out files that may hold credentials. Files that git tracks stay: they are published already."""
    left_out, note = private.set_aside(listing.untracked if listing.git else listing.files, include)
    if left_out:
        listing.files -= left_out
        listing.fresh -= left_out
        listing.notes.append(note)


def _set_own_aside(root: str, listing: Listing, own: dict[str, Glob]) -> None:
    """Take out files that the job writes. A linked directory that contains such files is linked file by file instead."""
    globs = list(own.values())
    if not globs:
        return
    homes = {os.path.relpath(glob.prefix, root) for glob in globs} - {"."}
    listing.notes += _own_notes(root, listing, own)
    listing.files = {
        path
        for path in listing.files
        if not any(glob.owns(path) for glob in globs) and not (path in listing.untracked and _lies_in(path, homes))
    }
    kept: set[str] = set()
    left = list(listing.links)
    while left:
        path = left.pop()
        if any(glob.owns(path) for glob in globs) or _lies_in(path, homes):
            continue
        if any(home.startswith(path + "/") for home in homes) and os.path.isdir(f"{root}/{path}"):
            left += [f"{path}/{name}" for name in os.listdir(f"{root}/{path}") if not is_junk(name)]
        else:
            kept.add(path)
    listing.links = kept


def _own_notes(root: str, listing: Listing, own: dict[str, Glob]) -> list[str]:
    """Notes about globs of written files that take out files which are probably code: tracked ones, or ones beside them."""
    notes = []
    for pattern, glob in own.items():
        wide = os.path.relpath(glob.prefix, root) == "."
        taken = sorted(p for p in listing.files if glob.owns(p) and (wide or (listing.git and p not in listing.untracked)))
        if taken:
            more = f" and {len(taken) - 3} more" if len(taken) > 3 else ""
            notes.append(f"not copied, because {pattern!r} says that the job writes it: {', '.join(taken[:3])}{more}")
    return notes


def _lies_in(path: str, homes: Iterable[str]) -> bool:
    return any(path == home or path.startswith(home + "/") for home in homes)


class _Collected:
    """Collects the tree."""

    def __init__(self, root: str, listing: Listing, limits: Limits) -> None:
        self._root, self._listing, self._limits = root, listing, limits
        self._entries: dict[str, Entry] = {}
        self._sources: dict[str, str] = {}
        self._links = set(listing.links)
        self._notes = list(listing.notes)
        self._bytes = 0

    def add_files(self, digests: Digests) -> None:
        """Digest the files to copy."""
        looks, most = self._looks(), self._limits.git_file_bytes if self._listing.git else sys.maxsize
        if self._listing.git:
            fresh = {path: looks[path].st_size for path in self._listing.fresh & looks.keys()}
            check_fresh(self._root, fresh, self._limits)
            total = sum([look.st_size for look in looks.values() if look.st_size <= most])
            if total > self._limits.git_bytes or len(looks) > self._limits.git_files:
                size = f"{len(looks):,} files, {total / MIB:,.0f} MiB"
                raise TooLargeError(
                    f"{self._root}: the repository has {size}; that is too much for a copy",
                    "Use --in-place, or name a smaller work directory.",
                )
        digests.ready()
        remembered, known = digests.remembered, self._listing.digests
        for path, look in looks.items():
            if look.st_size > most:
                self._links.add(path)
                continue
            sha256 = known.get(path) or remembered(path, look)
            if sha256 is None:
                self._digest_file(path, look, digests)
            else:
                self._add_file(path, look, sha256)
        digests.save()

    def _looks(self) -> dict[str, os.stat_result]:
        """Stat every regular file; add symbolic links to the tree on the way."""
        looks: dict[str, os.stat_result] = {}
        taken, regular = self._listing.looks, stat.S_ISREG
        for path in self._listing.files:
            try:
                path.isascii() or path.encode()
                status = taken.get(path) or os.lstat(f"{self._root}/{path}")
            except UnicodeEncodeError:
                self._notes.append(f"{path!a}: not copied: its name is not UTF-8")
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted but still tracked, or gone meanwhile
            except OSError as error:
                self._notes.append(f"{path}: not copied: {error.strerror}")
            else:
                if regular(status.st_mode):
                    looks[path] = status
                elif stat.S_ISLNK(status.st_mode):
                    self._add_symlink(path)
        return looks

    def _add_symlink(self, path: str) -> None:
        try:
            target = os.readlink(f"{self._root}/{path}")
            target.encode()
        except (OSError, UnicodeEncodeError):
            self._notes.append(f"{path}: not copied: a symbolic link that cannot be read")
            return
        inside = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if not os.path.isabs(target) and (inside == ".." or inside.startswith("../")):
            self._links.add(path)  # it points outside: a copy of the link would point elsewhere
        else:
            self._entries[path] = Entry(path=path, type="symlink", target=target)

    def _digest_file(self, path: str, look: os.stat_result, digests: Digests) -> None:
        """Digest and add a file that is not in the cache."""
        try:
            sha256, status = digests.of(path, look)
        except FileNotFoundError:
            return  # gone meanwhile
        except OSError as error:
            self._notes.append(f"{path}: not copied: {error.strerror}")
            return
        self._add_file(path, status, sha256)

    def _add_file(self, path: str, status: os.stat_result, sha256: str) -> None:
        mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        self._entries[path] = {"path": path, "type": "file", "sha256": sha256, "mode": mode, "bytes": status.st_size}
        self._sources.setdefault(sha256, f"{self._root}/{path}")
        self._bytes += status.st_size

    def add_links(self) -> None:
        """Add links for paths that are not copied."""
        if len(self._links) > _LINKS_MAX:
            raise TooLargeError(
                f"{self._root}: {len(self._links):,} paths would have to be linked one by one; the limit is {_LINKS_MAX:,}",
                "Let git ignore their directory (data/) instead of its content (data/*), or use --in-place.",
            )
        for path in sorted(self._links):
            try:
                path.encode()
            except UnicodeEncodeError:
                self._notes.append(f"{path!a}: not linked: its name is not UTF-8")
                continue
            self._entries[path] = Entry(path=path, type="link")

    def gathered(self, patch: Patch | None) -> Gathered:
        """The result, without entries inside other entries (a directory may have become a link meanwhile)."""
        above = {path.rpartition("/")[0] for path in self._entries}
        inside = tuple(f"{directory}/" for directory in above if directory in self._entries or self._is_inside_entry(directory))
        entries = [self._entries[path] for path in sorted(self._entries) if not path.startswith(inside)]
        links = tuple(entry["path"] for entry in entries if entry["type"] == "link")
        notes = self._notes[:_NOTES_MAX]
        if len(self._notes) > _NOTES_MAX:
            notes.append(f"and {len(self._notes) - _NOTES_MAX:,} more that were not copied")
        if links:
            more = f" and {len(links) - 8:,} more" if len(links) > 8 else ""
            notes.append(f"linked, not copied: {', '.join(links[:8])}{more}")
        files = sum(entry["type"] == "file" for entry in entries)
        listing = self._listing
        return Gathered(
            Tree(entries=entries), self._sources, listing.commit, listing.dirty, patch, files, self._bytes, links, tuple(notes)
        )

    def _is_inside_entry(self, path: str) -> bool:
        above = path.rpartition("/")[0]
        while above:
            if above in self._entries:
                return True
            above = above.rpartition("/")[0]
        return False


def pack_zip(gathered: Gathered, missing: Sequence[str]) -> bytes:
    """A zip of the `missing` objects, each named by its SHA-256, uncompressed.

    Raises: ChangedError if a file has changed since it was gathered, OperationError if it cannot be read any more.
    """
    import zipfile  # noqa: PLC0415  # a slow import, and most submits have nothing to upload

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for sha256 in missing:
            path = Path(gathered.sources[sha256])
            try:
                data = path.read_bytes()
            except OSError as error:
                raise OperationError(f"{path} cannot be read any more: {error.strerror}", "Submit again.") from error
            if hashlib.sha256(data).hexdigest() != sha256:
                hint = "Submit again when nothing writes to it, or let git ignore it."
                raise ChangedError(f"{path} changes while it is copied", hint)
            archive.writestr(zipfile.ZipInfo(sha256), data)
    return packed.getvalue()
