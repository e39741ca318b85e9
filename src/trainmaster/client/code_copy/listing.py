"""Lists the files of a work directory for a code copy: which to copy and which to link.

In git, tracked files and untracked files that are not ignored are copied, also those of submodules; ignored paths are
linked. Elsewhere everything up to the limits is copied, and larger files are linked. In both, `large` then links large data.
"""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainmaster.client.code_copy.digests import Digests
from trainmaster.errors import TooLargeError

MIB = 1024 * 1024
JUNK = frozenset(
    ("__pycache__", ".git", ".hg", ".svn", ".DS_Store", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache")
)
ENVIRONMENTS = frozenset((".venv", "venv", "node_modules", ".tox", ".nox", ".conda", "site-packages"))
DATA = frozenset(("data", "dataset", "datasets", "mlruns", "wandb", "lightning_logs"))
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--ignored=matching")
_STATUS_REST = ("--no-renames", "--ignore-submodules=all", "--", ".")
_SUBMODULE = "160000"
_OVERLOOKED = tuple("hSsmrck")  # tags of files that are assumed to be unchanged, or left out of the work tree
_SHA1_LENGTH = 40

# Why a path is linked.
IGNORED = "git ignores it"
PACKAGES = "installed packages"
NAMED_DATA = "named as data"
LARGE = "large"
BEYOND = "beyond the limits of a copy"
LEADS_OUT = "a symbolic link that leads out of the directory"


class Aside(NamedTuple):
    """A path that is not copied, and why. `notable`: the submitter may not expect it, so every submit says it."""

    path: str
    why: str
    notable: bool = False


class Limits(NamedTuple):
    """What a code copy may hold. A file beyond its limit is linked."""

    bytes: int = 200 * MIB  # in git: of changed and untracked files; elsewhere: of all
    files: int = 20_000  # likewise
    file_bytes: int = 10 * MIB  # of a file that git does not track
    directory_bytes: int = 32 * MIB  # of a directory without code that git does not track
    git_file_bytes: int = 64 * MIB
    git_bytes: int = 2048 * MIB  # of all files
    git_files: int = 100_000


@dataclass(slots=True)
class GitState:
    """What git says of a directory; as it is here outside of git."""

    commit: str | None = None  # None also before the first commit
    dirty: bool = False  # the files differ from the commit
    overlooked: list[str] = field(default_factory=list)  # changed files that git was told to overlook, and calls unchanged

    @property
    def has_patch(self) -> bool:
        """Whether there is a difference from a commit."""
        return self.commit is not None and self.dirty


class Listing:
    """Paths relative to the work directory, with `/`. `git`: None outside of git."""

    def __init__(self, git: GitState | None = None) -> None:
        self.files: set[str] = set()
        self.fresh: set[str] = set()  # members of `files` that are changed or untracked
        self.untracked: set[str] = set()
        self.links: dict[str, str] = {}  # path -> why
        self.empty: set[str] = set()  # empty directories; none in git, which has none either
        self.left_out: list[Aside] = []
        self.looks: dict[str, os.stat_result] = {}  # stat results of tracked files, taken while git was running
        self.digests: dict[str, str] = {}  # cached digests of those that have not changed
        self.note = ""  # about the whole directory
        self.git = git


def list_directory(root: str, limits: Limits, digests: Digests | None = None) -> Listing:
    """What to copy and what to link of `root`; for tracked files the digests in `digests`. Raises: TooLargeError."""
    listing, note = _git_listing(root, digests)
    if listing is None:
        listing = _plain_listing(root, limits)
    listing.note = note
    return listing


def git_state(root: str) -> GitState:
    """What git says of `root`."""
    listing, _ = _git_listing(root)
    return listing.git if listing is not None and listing.git is not None else GitState()


def git_environment() -> dict[str, str]:
    """The environment for git, without variables that a git hook may have set for another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def _git_listing(root: str, digests: Digests | None = None) -> tuple[Listing | None, str]:
    """The listing of a directory in git; None outside of git, or with a note if git cannot be used.

    With `digests`, tracked files are examined as well, while `git status` runs.
    """
    real = os.path.realpath(root)
    top = _top(real)
    if top is None:
        return None, ""
    environment = git_environment()
    try:
        commands = [(*GIT, "-C", real, "ls-files", "-z", "-v", "--stage"), (*GIT, "-C", real, *_STATUS, *_STATUS_REST)]
        pipe = subprocess.PIPE
        running = [subprocess.Popen(c, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment) for c in commands]
    except OSError:
        return None, "git is not installed: the directory is copied like one outside of git"
    prefix = "" if real == top else os.path.relpath(real, top) + "/"
    repository = _Repository(real, prefix)
    repository.track(os.fsdecode(running[0].communicate()[0]), digests)
    status, errors = running[1].communicate()
    if any(process.returncode for process in running):
        reason = (errors.decode(errors="replace").strip().splitlines() or ["no reason given"])[0]
        return None, f"git cannot read this repository ({reason}): the directory is copied like one outside of git"
    return repository.listing(os.fsdecode(status)), ""


def _top(real: str) -> str | None:
    while True:
        if os.path.exists(f"{real}/.git"):
            return real
        above = os.path.dirname(real)
        if above == real:
            return None
        real = above


class _Repository:
    """What git reports for a directory, `prefix` below the top of its repository."""

    def __init__(self, root: str, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self._git = GitState()
        self._listing = Listing(self._git)
        self._submodules: dict[str, str] = {}  # path -> commit in the index
        self._overlooked: dict[str, str] = {}  # path -> object in the index

    def track(self, tracked: str, digests: Digests | None) -> None:
        """Parse the output of `git ls-files -v --stage` (tag, mode, object and stage of fixed length, then the path). If
        digests are wanted, also examine each file.
        """
        records = tracked.split("\0")
        begin = records[0].find("\t") + 1
        objects = slice(len("H 100644 "), begin - len(" 0\t"))
        self._submodules = {record[begin:]: record[objects] for record in records if record.startswith(_SUBMODULE, 2)}
        self._overlooked = {record[begin:]: record[objects] for record in records if record.startswith(_OVERLOOKED)}
        files, looks, lstat, root = self._listing.files, self._listing.looks, os.lstat, self._root + "/"
        files.update([record[begin:] for record in records if record])
        files.difference_update(self._submodules)
        if digests is None:
            return
        for path in files:
            try:
                looks[path] = lstat(root + path)
            except (OSError, UnicodeEncodeError):
                continue  # the copy will report it
        digests.ready()
        remembered = digests.remembered
        self._listing.digests = {path: sha256 for path, look in looks.items() if (sha256 := remembered(path, look)) is not None}

    def listing(self, status: str) -> Listing | None:
        """Add the output of `git status`. None if the directory itself is ignored: it is then treated as outside of git."""
        result, inner = self._listing, list(self._submodules)
        self._git.overlooked = [path for path, known in self._overlooked.items() if self._differs(path, known)]
        result.fresh.update(self._git.overlooked)
        for record in filter(None, status.split("\0")):
            kind, _, rest = record.partition(" ")
            if kind == "#":
                self._header(rest)
            elif kind == "!" and self._prefix.startswith(rest if rest.endswith("/") else rest + "/") and not result.files:
                return None
            elif kind in ("1", "u"):
                self._changed(rest.split(" ", 7 if kind == "1" else 9)[-1])
            elif kind == "?":
                self._untracked(rest, inner)
            elif kind == "!":
                self._ignored(rest)
        self._git.dirty = bool(result.fresh) or self._git.dirty
        for path in inner:
            self._inner(path.rstrip("/"))
        return result

    def _below(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _header(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if name == "branch.oid" and value != "(initial)":
            self._git.commit = value

    def _changed(self, path: str) -> None:
        self._listing.fresh.add(self._below(path))

    def _untracked(self, path: str, inner: list[str]) -> None:
        below = self._below(path)
        if path.endswith("/"):
            inner.append(below)  # a repository inside this one
            return
        if is_junk(below):
            return  # as outside of git: a repository need not say that it ignores caches
        self._listing.files.add(below)
        self._listing.fresh.add(below)
        self._listing.untracked.add(below)

    def _ignored(self, path: str) -> None:
        below = self._below(path).rstrip("/")
        if not is_junk(below):
            self._listing.links[below] = IGNORED

    def _differs(self, path: str, known: str) -> bool:
        """Whether a file that git was told to overlook differs from the index. What cannot be read counts as different.

        An absent one does not: it may be left out on purpose (a sparse checkout).
        """
        place = f"{self._root}/{path}"
        try:
            mode = os.lstat(place).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                return True  # a directory, or a pipe, whose reader would wait
            data = os.fsencode(os.readlink(place)) if stat.S_ISLNK(mode) else Path(place).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        kind = hashlib.sha1 if len(known) == _SHA1_LENGTH else hashlib.sha256
        return kind(b"blob %d\0" % len(data) + data).hexdigest() != known

    def _inner(self, path: str) -> None:
        """List the files of a submodule or of another repository inside this one."""
        listing = _git_listing(f"{self._root}/{path}")[0] if os.path.exists(f"{self._root}/{path}/.git") else None
        if listing is None or listing.git is None:
            self._listing.left_out.append(Aside(path, "a submodule that is not checked out", notable=True))
            return
        for mine, theirs in (
            (self._listing.files, listing.files),
            (self._listing.fresh, listing.fresh),
            (self._listing.untracked, listing.untracked),
        ):
            mine.update(f"{path}/{name}" for name in theirs)
        self._listing.links.update({f"{path}/{name}": why for name, why in listing.links.items()})
        self._listing.left_out += [one._replace(path=f"{path}/{one.path}") for one in listing.left_out]
        commit = listing.git.commit
        other = commit != self._submodules.get(path, commit)  # than the one that this commit names
        self._git.dirty = self._git.dirty or listing.git.dirty or other


def is_junk(path: str) -> bool:
    """Whether a path is generated by programs or by version control; such paths are neither copied nor linked."""
    return any(part in JUNK for part in path.split("/")) or path.endswith((".pyc", ".pyo"))


class _Directory:
    """One scanned directory outside of git."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[str, int] = {}  # files to copy -> size
        self.large: list[str] = []
        self.directories: list[str] = []
        self.left_out: list[Aside] = []
        self.whole = True  # False: too many files, the scan stopped
        self.empty = True

    @property
    def rank(self) -> tuple[bool, int, str]:
        """The order of copying: directories with code first, then small ones."""
        return not any(name.endswith(".py") for name in self.files), sum(self.files.values()), self.path


def _plain_listing(root: str, limits: Limits) -> Listing:
    """List level by level, so that files near the top are copied, and deep or large ones are linked."""
    listing = Listing()
    bytes_left, level = limits.bytes, [""]
    while level:
        scanned = sorted((_scan(root, path, limits) for path in level), key=lambda directory: directory.rank)
        level = []
        for directory in scanned:
            size = sum(directory.files.values())
            fits = directory.whole and len(listing.files) + len(directory.files) <= limits.files and size <= bytes_left
            if not fits and not directory.path:
                raise _too_large(root, directory.files, limits, "the work directory itself holds")
            if not fits or _is_data(directory):
                listing.links[directory.path] = NAMED_DATA if fits else BEYOND
                continue
            bytes_left -= size
            listing.files.update(directory.files)
            listing.links.update(dict.fromkeys(directory.large, LARGE))
            listing.left_out += directory.left_out
            if directory.empty and directory.path:
                listing.empty.add(directory.path)
            for path in directory.directories:
                if os.path.basename(path) in ENVIRONMENTS or os.path.exists(f"{root}/{path}/pyvenv.cfg"):
                    listing.links[path] = PACKAGES
                else:
                    level.append(path)
    return listing


def _is_data(directory: _Directory) -> bool:
    named = os.path.basename(directory.path).lower() in DATA
    return named and not any(name.endswith(".py") for name in directory.files)


def _scan(root: str, path: str, limits: Limits) -> _Directory:
    result = _Directory(path)
    try:
        with os.scandir(f"{root}/{path}" if path else root) as entries:
            for entry in entries:
                result.empty = False
                name = f"{path}/{entry.name}" if path else entry.name
                if entry.name in JUNK or entry.name.endswith((".pyc", ".pyo")):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    result.directories.append(name)
                    continue
                _place(result, name, entry, limits)
                if len(result.files) + len(result.large) > limits.files:
                    result.whole = False
                    break
    except OSError as error:  # also during the scan: some directories in /proc can be opened but not read
        result.empty = False
        result.left_out.append(Aside(path or ".", str(error.strerror), notable=True))
    return result


def _place(directory: _Directory, name: str, entry: "os.DirEntry[str]", limits: Limits) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # gone meanwhile
    except OSError as error:
        directory.left_out.append(Aside(name, str(error.strerror), notable=True))
        return
    if stat.S_ISLNK(status.st_mode):
        directory.files[name] = 0
    elif not stat.S_ISREG(status.st_mode):
        directory.left_out.append(Aside(name, "neither a file nor a directory"))
    elif status.st_size > limits.file_bytes:
        directory.large.append(name)
    else:
        directory.files[name] = status.st_size


def _too_large(root: str, sizes: dict[str, int], limits: Limits, what: str) -> TooLargeError:
    """The error, with the largest paths and what to do."""
    has = f"{what} {len(sizes):,} files, {sum(sizes.values()) / MIB:,.0f} MiB"
    takes = f"a code copy takes {limits.files:,} files, {limits.bytes / MIB:,.0f} MiB"
    return TooLargeError(
        f"{root}: {has}; {takes}. The biggest: {', '.join(biggest(sizes))}",
        "Name them in .gitignore (they are linked then), move them out of the work directory, or use --in-place.",
        [{"path": path, "bytes": size} for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:10]],
    )


def check_fresh(root: str, sizes: dict[str, int], limits: Limits) -> None:
    """Reject a repository whose changed and untracked files are too large. Raises: TooLargeError."""
    if sum(sizes.values()) > limits.bytes or len(sizes) > limits.files:
        raise _too_large(root, sizes, limits, "changed and untracked are")


def biggest(sizes: dict[str, int]) -> Iterable[str]:
    """The five largest files or directories, as text."""
    groups: dict[str, list[int]] = {}
    for path, size in sizes.items():
        alone = size * 10 > sum(sizes.values()) or "/" not in path
        groups.setdefault(path if alone else os.path.dirname(path) + "/", []).append(size)
    ranked = sorted(groups.items(), key=lambda item: (-sum(item[1]), item[0]))[:5]
    for path, each in ranked:
        files = f", {len(each):,} files" if path.endswith("/") else ""
        yield f"{path} ({sum(each) / MIB:,.1f} MiB{files})"
