"""Reads what installers leave in the directories of a Python: names and versions, where code came from, and `.pth` files."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

_EGG = re.compile(r"(.+?)-([^-]+)(?:-py\d[\d.]*.*)?\Z")
_SEPARATORS = re.compile(r"[-_.]+")
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_NO_PATH = ("#", "import ", "import\t")  # lines of a `.pth` file
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_DIGITS = 12


class Installed(NamedTuple):
    """One package in a directory."""

    name: str  # normalized
    version: str
    directory: str  # of its metadata
    developed: bool  # it lies beside its source: `setup.py develop`, or an older `pip install --editable`


class Reader:
    """Reads directories and files. What is there and cannot be read is told in `unread`: it is not as if it were not there."""

    def __init__(self) -> None:
        self.unread: Dict[str, str] = {}  # path -> why

    def installed(self, site: str, beside: bool) -> Iterator[Installed]:
        """The packages in a directory, in order. `beside`: a `.pth` file named it, so it may have the source of a package."""
        if beside and site.endswith(".egg"):
            project, version = _of_egg(os.path.basename(site)[: -len(".egg")])
            if project:
                yield Installed(normalized(project), version, os.path.join(site, "EGG-INFO"), False)
        for entry in self.listed(site):
            stem, dot, ending = entry.rpartition(".")
            if not dot or ending not in ("dist-info", "egg-info"):
                continue
            project, _, version = stem.rpartition("-")
            directory = os.path.join(site, entry)
            if ending == "egg-info":
                project, version = _of_egg(stem)
                if beside and not project:  # only metadata beside its source has no version in its name
                    yield Installed(normalized(stem), self._version(directory), directory, True)
            if project:
                yield Installed(normalized(project), version, directory, False)

    def _version(self, directory: str) -> str:
        match = _VERSION.search(self.text(os.path.join(directory, "PKG-INFO")))
        return match[1] if match else "unknown"

    def directories_of_pth(self, site: str) -> Iterator[str]:
        """The directories that `.pth` files of a site name and that exist, in the order in which Python adds them."""
        for name in self.listed(site):
            if not name.endswith(".pth") or name.startswith("."):
                continue
            for line in self.text(os.path.join(site, name)).lstrip("\ufeff").splitlines():
                if not line.strip() or line.startswith(_NO_PATH) or "\0" in line:
                    continue
                path = os.path.abspath(os.path.join(site, line.rstrip()))
                if self.exists(path):
                    yield path

    def direct_url(self, directory: str) -> Optional[Dict[str, Any]]:
        """Where a package came from if not from an index, as its installer wrote it; None if it wrote nothing."""
        written = self.text(os.path.join(directory, "direct_url.json"))
        if not written:
            return None
        import json  # noqa: PLC0415 - few packages have it

        try:
            told = json.loads(written)
        except (ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def code_of(self, told: Dict[str, Any], directory: str) -> str:
        """What identifies the code of a package that is not from an index; "" if nothing does."""
        commit = _section(told, "vcs_info").get("commit_id")
        return f"commit {commit[:_DIGITS]}" if isinstance(commit, str) and commit else self._files_digest(directory)

    def _files_digest(self, directory: str) -> str:
        """Of the digests of a package's files, as its installer recorded them; "" if it did not."""
        import hashlib  # noqa: PLC0415 - few packages need it

        rows = (line.split(",") for line in self.text(os.path.join(directory, "RECORD")).splitlines())
        # What the installer itself writes names the environment: its notes, programs in `bin`, compiled files without a digest.
        notes = f"{os.path.basename(directory)}/"
        own = sorted(",".join(row) for row in rows if len(row) > 1 and row[-2] and not row[0].startswith(("../", "/", notes)))
        return f"files {hashlib.sha256(chr(10).join(own).encode()).hexdigest()[:_DIGITS]}" if own else ""

    def listed(self, directory: str) -> List[str]:
        """The names in a directory, sorted; none if it is not there."""
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            self._told(directory, error)
            return []

    def text(self, path: str) -> str:
        """The text of a file; empty if it is not there."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            self._told(path, error)
            return ""

    def changed_ns(self, path: str) -> int:
        """When it was changed; 0 if it is not there."""
        try:
            return os.stat(path).st_mtime_ns
        except OSError as error:
            return -1 if self._told(path, error) else 0

    def exists(self, path: str) -> bool:
        """Whether it is there, as far as that is known."""
        try:
            os.stat(path)
        except OSError as error:
            return self._told(path, error)
        return True

    def _told(self, path: str, error: OSError) -> bool:
        """Note an error, unless it says that nothing is there."""
        if error.errno in _NOTHING:
            return False
        self.unread[path] = error.strerror or type(error).__name__
        return True


def normalized(project: str) -> str:
    """The name of a package as its index writes it."""
    return _SEPARATORS.sub("-", project).lower()


def is_editable(told: Optional[Dict[str, Any]]) -> bool:
    """Whether a package's code is elsewhere, by what `Reader.direct_url` says."""
    return _section(told, "dir_info").get("editable") is True


def source(told: Dict[str, Any]) -> Optional[str]:
    """The directory that a package was installed from; None if it was none."""
    from urllib.parse import unquote  # noqa: PLC0415 - only a submit asks for this

    url = told.get("url")
    return unquote(url[len("file://") :]) if isinstance(url, str) and url.startswith("file://") else None


def _of_egg(stem: str) -> Tuple[str, str]:
    """Name and version from the name of an egg; empty if it has no version."""
    match = _EGG.match(stem)
    return (match[1], match[2]) if match else ("", "")


def _section(told: Optional[Dict[str, Any]], name: str) -> Dict[str, Any]:
    found = (told or {}).get(name)
    return found if isinstance(found, dict) else {}
