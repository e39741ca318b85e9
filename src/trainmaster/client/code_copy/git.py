"""What git knows about a work directory besides its files: the patch to the commit, and the remote."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from trainmaster.client.code_copy.listing import GIT, git_environment
from trainmaster.model.redaction import without_credentials

DIFF_MAX_BYTES = 8 * 1024 * 1024  # stored part of a patch; the code copy has the files themselves
_DIFF = (  # in the format for `git apply`, which takes names from the top of the repository, whatever is configured
    "-c", "diff.relative=false", "diff", "HEAD", "--binary", "-U3", "--src-prefix=a/", "--dst-prefix=b/", "--no-color",
    "--no-ext-diff", "--no-textconv", "--no-renames",
)  # fmt: skip
_SECTION = r'\[\s*(?P<name>[\w.-]+)(?:\s+"(?P<sub>[^"]*)")?\s*\]'
_READ_BYTES = 1 << 16
_COUNTED_MAX_BYTES = 256 * 1024 * 1024  # the length of a patch is counted up to this


class Patch(NamedTuple):
    """From the commit to the files that git knows, as they are. `bytes` is of the whole, `data` may be its beginning."""

    data: bytes
    bytes: int

    @property
    def digest(self) -> str:
        """The SHA-256 that `data` is stored under."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def cut(self) -> bool:
        """Whether `data` is not the whole."""
        return len(self.data) < self.bytes


class Differ:
    """`git diff` on its way, beside what else a submit has to do. `overlooked`: changed files that git was told to overlook."""

    def __init__(self, root: str, overlooked: Sequence[str] = ()) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._index = tempfile.TemporaryDirectory() if overlooked else None
        environment = git_environment()
        try:
            if self._index is not None:
                environment["GIT_INDEX_FILE"] = _seeing(root, overlooked, f"{self._index.name}/index", environment)
            command = [*GIT, "-C", root, *_DIFF, "--ignore-submodules=all", "--", "."]
            self._process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=null, env=environment)
        except OSError:
            return  # git was just removed: continue without a patch

    def patch(self) -> Patch | None:
        """The patch; None if there is none: all new files are untracked."""
        if self._process is None or self._process.stdout is None:
            return None
        with self._process as process:
            assert process.stdout is not None
            data, size = _bounded(process.stdout)
            process.kill()
        if self._index is not None:
            self._index.cleanup()
        return Patch(data, size) if data else None


def _seeing(root: str, overlooked: Sequence[str], copy: str, environment: dict[str, str]) -> str:
    """A copy of the index in which git does not overlook these files. Raises: OSError."""
    index = subprocess.run([*GIT, "-C", root, "rev-parse", "--git-path", "index"], capture_output=True, env=environment).stdout
    # With its time: by that git knows which files it must read, because they may have changed within the same second.
    shutil.copy2(os.path.join(root, os.fsdecode(index.removesuffix(b"\n"))), copy)
    names = os.fsencode("".join(f"{path}\0" for path in overlooked))
    for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
        command = [*GIT, "-C", root, "update-index", flag, "-z", "--stdin"]
        subprocess.run(command, input=names, capture_output=True, env={**environment, "GIT_INDEX_FILE": copy})
    return copy


def _bounded(stream: IO[bytes]) -> tuple[bytes, int]:
    """The beginning of a stream in whole lines, and its total length."""
    kept, size = bytearray(), 0
    while part := stream.read(_READ_BYTES):
        kept += part[: max(0, DIFF_MAX_BYTES - size)]
        size += len(part)
        if size > _COUNTED_MAX_BYTES:
            break
    return bytes(kept if size <= DIFF_MAX_BYTES else kept[: kept.rfind(b"\n") + 1]), size


def recorded(root: str, commit: str | None, patch: Patch | None) -> dict[str, object]:
    """The origin's git fields besides commit and state (`model.spec.Origin`)."""
    if commit is None:
        return {}
    told: dict[str, object] = {"git_remote": remote(root)}
    if patch is not None:
        told |= {"git_diff": patch.digest, "git_diff_bytes": patch.bytes, "git_diff_cut": patch.cut}
    return told


def remote(root: str) -> str | None:
    """The URL of the remote `origin`, else of the first one, without credentials; None outside of git."""
    found: dict[str, str] = {}
    for line in _configuration(root):
        name, _, url = line.partition("\0")
        found.setdefault(name, url)
    first = found.get("origin") or next(iter(found.values()), None)
    return without_credentials(first) if first else None


def _configuration(root: str) -> Iterator[str]:
    """`name NUL url` of each remote, read from the configuration file: calling git would take longer."""
    directory = _git_directory(os.path.realpath(root))
    if directory is None:
        return
    name: str | None = None
    for line in _lines(os.path.join(directory, "config")):
        section = re.match(_SECTION, line)
        if section:
            name = section["sub"] if section["name"].lower() == "remote" else None
        key, equals, value = line.partition("=")
        if name and equals and key.strip().lower() == "url":
            yield f"{name}\0{value.strip().strip(chr(34))}"


def _git_directory(place: str) -> str | None:
    """The git directory: `.git`, or the directory that a `.git` file of a work tree points to."""
    while not os.path.exists(os.path.join(place, ".git")):
        above = os.path.dirname(place)
        if above == place:
            return None
        place = above
    git = os.path.join(place, ".git")
    if os.path.isdir(git):
        return git
    named = next(iter(_lines(git)), "").removeprefix("gitdir:").strip()
    inner = os.path.normpath(os.path.join(place, named))
    shared = next(iter(_lines(os.path.join(inner, "commondir"))), "")
    return os.path.normpath(os.path.join(inner, shared.strip())) if shared else inner


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file]
    except OSError:
        return []
