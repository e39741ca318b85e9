"""Gathers the code copy of a work directory at submit: a tree of digests, and the source of each object.

Not part of it are files that the job itself writes (see `agent.launch.work_directory`) and the output of this process.
"""

import gc
import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trainmaster.client.code_copy import exclusions
from trainmaster.client.code_copy.digests import Digests
from trainmaster.client.code_copy.git import Differ, Patch
from trainmaster.client.code_copy.large import large
from trainmaster.client.code_copy.listing import (
    BEYOND,
    LARGE,
    LEADS_OUT,
    MIB,
    Aside,
    GitState,
    Limits,
    Listing,
    check_fresh,
    list_directory,
)
from trainmaster.errors import ChangedError, OperationError, TooLargeError
from trainmaster.wire.code import Entry, Tree

__all__ = ["Gathered", "Limits", "gather", "pack_zip"]

_LINKS_MAX = 20_000
_EMPTY_MAX = 10_000  # directories
_OUTPUT = "the output of this command"


class Gathered(NamedTuple):
    """A gathered work directory. `note`: about the whole directory."""

    tree: Tree
    sources: dict[str, str]  # absolute paths by SHA-256
    git_commit: str | None
    git_dirty: bool
    git_patch: Patch | None
    files: int
    bytes: int
    links: tuple[Aside, ...]
    left_out: tuple[Aside, ...]
    note: str

    @property
    def linked(self) -> int:
        """How many paths are linked instead of copied."""
        return len(self.links)


def gather(
    workdir: Path,
    limits: Limits | None = None,
    own: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Gathered:
    """Gather the code copy of `workdir`. `own`: globs of files that the job will write (checkpoint path, artifacts).

    Files that may hold credentials are left out, unless git tracks them, or `include` names them or their directory.
    `exclude`: globs of files to leave out.
    Raises: TooLargeError that lists the largest paths, OperationError if the directory does not exist, ChangedError.
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
        exclusions.set_server_aside(root, listing)
        exclusions.set_private_aside(listing, include)
        exclusions.set_excluded_aside(root, listing, exclude)
        differ = Differ(root, listing.git.overlooked) if listing.git is not None and listing.git.has_patch else None
        homes = exclusions.set_own_aside(root, listing, own)
        collected = _Collected(root, listing, limits)
        collected.add_files(digests, homes)
        collected.add_links()
        collected.add_directories(homes)
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


def _output() -> set[tuple[int, int]]:
    """Device and inode of the files to which this process writes its output."""
    found = set()
    for descriptor in (1, 2):
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue  # closed
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


class _Collected:
    """Collects the tree."""

    def __init__(self, root: str, listing: Listing, limits: Limits) -> None:
        self._root, self._listing, self._limits = root, listing, limits
        self._entries: dict[str, Entry] = {}
        self._sources: dict[str, str] = {}
        self._links = dict(listing.links)
        self._out: set[str] = set()  # symbolic links with an absolute target: nobody digests what they lead to
        self._left_out = list(listing.left_out)
        self._bytes = 0

    def add_files(self, digests: Digests, homes: set[str]) -> None:
        """Digest the files to copy. Large data is linked, but not in `homes`."""
        looks, most = self._looks(), self._limits.git_file_bytes if self._listing.git is not None else sys.maxsize
        looks = self._without_large(looks, homes)
        if self._listing.git is not None:
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
                self._links[path] = LARGE
                continue
            sha256 = known.get(path) or remembered(path, look)
            if sha256 is None:
                self._digest_file(path, look, digests)
            else:
                self._add_file(path, look, sha256)
        digests.save()

    def _without_large(self, looks: dict[str, os.stat_result], homes: set[str]) -> dict[str, os.stat_result]:
        """Link large data; returns the other files."""
        untracked = self._listing.untracked if self._listing.git is not None else looks.keys()
        sizes = {path: looks[path].st_size for path in untracked if path in looks}
        found = large(sizes, (path for path in self._listing.files if path not in sizes), homes, self._limits)
        self._links |= found
        directories = tuple(f"{path}/" for path in found if path not in sizes)
        return {path: look for path, look in looks.items() if path not in found and not path.startswith(directories)}

    def _looks(self) -> dict[str, os.stat_result]:
        """Stat every regular file; add symbolic links to the tree on the way."""
        looks: dict[str, os.stat_result] = {}
        taken, regular, output = self._listing.looks, stat.S_ISREG, _output()
        for path in self._listing.files:
            try:
                path.isascii() or path.encode()
                status = taken.get(path) or os.lstat(f"{self._root}/{path}")
            except UnicodeEncodeError:
                self._leave_out(ascii(path), "its name is not UTF-8")
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted but still tracked, or gone meanwhile
            except OSError as error:
                self._leave_out(path, error.strerror)
            else:
                if output and (status.st_dev, status.st_ino) in output:
                    self._left_out.append(Aside(path, _OUTPUT))
                elif regular(status.st_mode):
                    looks[path] = status
                elif stat.S_ISLNK(status.st_mode):
                    self._add_symlink(path)
        return looks

    def _add_symlink(self, path: str) -> None:
        try:
            target = os.readlink(f"{self._root}/{path}")
            target.encode()
        except (OSError, UnicodeEncodeError):
            self._leave_out(path, "a symbolic link that cannot be read")
            return
        inside = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if os.path.isabs(target):
            self._out.add(path)
        elif inside == ".." or inside.startswith("../"):
            self._links[path] = LEADS_OUT  # a copy of it would lead elsewhere
            return
        self._entries[path] = Entry(path=path, type="symlink", target=target)

    def _digest_file(self, path: str, look: os.stat_result, digests: Digests) -> None:
        """Digest and add a file that is not in the cache."""
        try:
            sha256, status = digests.of(path, look)
        except FileNotFoundError:
            return  # gone meanwhile
        except OSError as error:
            self._leave_out(path, error.strerror)
            return
        except ChangedError as error:
            raise _changing(self._root, path) from error
        self._add_file(path, status, sha256)

    def _leave_out(self, path: str, why: object) -> None:
        """Record a file that cannot be copied."""
        self._left_out.append(Aside(path, str(why), notable=True))

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
            if self._is_text(path):
                self._entries[path] = Entry(path=path, type="link")

    def _is_text(self, path: str) -> bool:
        try:
            path.encode()
        except UnicodeEncodeError:
            self._leave_out(ascii(path), "its name is not UTF-8")
            return False
        return True

    def add_directories(self, homes: set[str]) -> None:
        """Add directories of which nothing is copied: empty ones, and those that the job writes into, the `homes`.

        One with another of them inside is there anyway: an entry for it would stand for all that it contains.
        """
        wanted = {home for home in homes if os.path.isdir(f"{self._root}/{home}") and not home.startswith("../")}
        if len(self._listing.empty) <= _EMPTY_MAX:
            wanted |= self._listing.empty
        else:
            self._leave_out(".", f"{len(self._listing.empty):,} empty directories; at most {_EMPTY_MAX:,} are copied")
        paths = wanted | self._entries.keys()
        above = {path[:at] for path in paths for at, character in enumerate(path) if character == "/"}
        for path in wanted - above - self._entries.keys():
            if self._is_text(path):
                self._entries[path] = Entry(path=path, type="directory")

    def gathered(self, patch: Patch | None) -> Gathered:
        """The result, without entries inside other entries (a directory may have become a link meanwhile)."""
        above = {path.rpartition("/")[0] for path in self._entries}
        inside = tuple(f"{directory}/" for directory in above if directory in self._entries or self._is_inside_entry(directory))
        entries = [self._entries[path] for path in sorted(self._entries) if not path.startswith(inside)]
        linked = [Aside(p, self._links[p], self._links[p] in (LARGE, BEYOND)) for p in _paths(entries, "link")]
        links = tuple(sorted([*linked, *(Aside(p, LEADS_OUT) for p in _paths(entries, "symlink") if p in self._out)]))
        files, left_out = len(_paths(entries, "file")), tuple(self._left_out)
        git, note = self._listing.git or GitState(), self._listing.note
        state = (git.commit, git.dirty, patch)
        return Gathered(Tree(entries=entries), self._sources, *state, files, self._bytes, links, left_out, note)

    def _is_inside_entry(self, path: str) -> bool:
        above = path.rpartition("/")[0]
        while above:
            if above in self._entries:
                return True
            above = above.rpartition("/")[0]
        return False


def _paths(entries: list[Entry], kind: str) -> list[str]:
    return [entry["path"] for entry in entries if entry["type"] == kind]


def _changing(root: str, path: str) -> ChangedError:
    """The error for a file that changes at every try."""
    hint = f'Submit again when nothing writes to it, or leave it out: in trainmaster.toml, below [code]: exclude = ["{path}"]'
    return ChangedError(f"{root}/{path} changes while it is copied", hint)


def pack_zip(gathered: Gathered, missing: Sequence[str]) -> bytes:
    """A zip of the `missing` objects, each named by its SHA-256, uncompressed.

    Raises: ChangedError if a file has changed since it was gathered, OperationError if it cannot be read any more.
    """
    import zipfile  # noqa: PLC0415  # a slow import, and most submits have nothing to upload

    packed = io.BytesIO()
    entries = [entry for entry in gathered.tree["entries"] if entry["type"] == "file"]
    sizes = {entry["sha256"]: entry["bytes"] for entry in entries}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for sha256 in missing:
            path = gathered.sources[sha256]
            try:
                with open(path, "rb") as file:
                    data = file.read(sizes[sha256])  # it may have grown since
            except OSError as error:
                raise OperationError(f"{path} cannot be read any more: {error.strerror}", "Submit again.") from error
            if hashlib.sha256(data).hexdigest() != sha256:
                name = next(entry["path"] for entry in entries if path.endswith("/" + entry["path"]))
                raise _changing(path.removesuffix("/" + name), name)
            archive.writestr(zipfile.ZipInfo(sha256), data)
    return packed.getvalue()
