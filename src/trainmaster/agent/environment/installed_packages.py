"""Finds the Python of a command and its installed packages by reading directories; no interpreter is started.

Names and versions come from the `*.dist-info` and `*.egg-info` directories, also of the directories that `.pth` files name.
Packages on paths that a program or code in a `.pth` file adds to `sys.path` itself are not seen.
"""

from __future__ import annotations

import mmap
import os
import re

from trainmaster.agent.environment import command_line, package_metadata
from trainmaster.agent.environment.package_metadata import Installed, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

    from trainmaster.wire.environment import Torch

_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*\Z")
_WORD = re.compile(r"(?:^|[\s;&|(=\"'])([^\s;&|(=\"']*python[0-9.]*)(?=[\s\"']|$)")
_OF_DIRECTORY = re.compile(r"(?:pypy|python)(\d+\.\d+)\Z")
_HEADER = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_PATCH = re.compile(rb"(\d+\.\d+\.\d+(?:[abc]\d+|rc\d+)?\+?)\0")  # as a C string in the executable
_VERSION_MAX = 20
_UNREAD_MAX = 10
_SHEBANG_MAX = 256
_LIBRARIES = ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")


def interpreter(command: List[str], shell: bool, environment: Mapping[str, str], work: str) -> Tuple[Optional[str], bool]:
    """The Python of a command, and whether it surely starts this one and no other.

    It is named in the command, in the first line of its script, or else found on its PATH.
    """
    words, whole = command_line.programs(command, shell)
    seen = [_python_of(word, environment, work) for word in words]
    named = [path for path in seen if path is not None]
    if named:
        alike = {(os.path.dirname(path), os.path.realpath(path)) for path in named}
        head = _head(named[0])
        one = len(named) == len(seen) and len(alike) == 1 and head is not None and not head.startswith(b"#!")
        one = one and not (any("/" not in word for word in words) and _searched_in_work(environment, named[0]))
        return named[0], whole and one and not _decided_by(environment, words, "bash" in map(os.path.basename, command))
    written = _WORD.findall(command[-1] if shell else " ".join(command))
    guessed = (_python_of(word, environment, work) for word in (*written, "python", "python3"))
    return next((path for path in guessed if path is not None), None), False


def _decided_by(environment: Mapping[str, str], words: List[str], bash: bool) -> bool:
    """Whether a variable lets another Python start, or lets it find other packages than those of its own directories."""
    functions = any(f"BASH_FUNC_{word}%%" in environment for word in words)
    return bool(environment.get("PYTHONHOME") or (bash and (environment.get("BASH_ENV") or functions)))


def _searched_in_work(environment: Mapping[str, str], python: str) -> bool:
    """Whether PATH names a relative directory up to that of this Python: after a `cd` it is another one."""
    for directory in environment.get("PATH", "").split(os.pathsep):
        if not os.path.isabs(directory):
            return True
        if directory == os.path.dirname(python):
            break
    return False


def _python_of(word: str, environment: Mapping[str, str], work: str) -> Optional[str]:
    """The Python that a program is, or in which it runs as a script; None if it is neither, or not found."""
    path = _found(word, environment, work)
    if path is None or _PYTHON.match(os.path.basename(word)):
        return path
    line = _head(path)
    if line is None or not line.startswith(b"#!/"):
        return None
    program, _, argument = os.fsdecode(line[2:].strip()).partition(" ")
    if os.path.basename(program) == "env" and _PYTHON.match(argument):
        return _found(argument, environment, work)
    return program if _PYTHON.match(os.path.basename(program)) and os.path.isfile(program) else None


def _head(path: str) -> Optional[bytes]:
    """The first line of a file; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_SHEBANG_MAX).split(b"\n", 1)[0]
    except OSError:
        return None


def _found(word: str, environment: Mapping[str, str], work: str) -> Optional[str]:
    """The path of a program in a command line, by the rules of the system. `work`: where the command starts."""
    if "/" in word:
        path = os.path.join(work, os.path.expanduser(word))
        return path if os.path.isfile(path) else None
    for directory in environment.get("PATH", "").split(os.pathsep):
        path = os.path.join(work, directory, word)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


class Installation:
    """One interpreter and the directories from which it imports packages, in order."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.python = os.path.abspath(python)
        self._real = os.path.realpath(self.python)
        self._read = Reader()
        prefix = os.path.dirname(os.path.dirname(self.python))
        settings = self._settings(os.path.join(prefix, "pyvenv.cfg"))
        base = os.path.dirname(os.path.dirname(self._real))
        self.minor = self._minor(prefix if settings is not None else base)
        self.beside: List[str] = []  # directories that `.pth` files name
        self.sites = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if settings is not None:
            self.sites += self._searched(self._below(prefix))
        if settings is None or settings.get("include-system-site-packages", "").lower() == "true":
            user, home = environment.get("PYTHONUSERBASE"), environment.get("HOME")
            if (user or home) and not environment.get("PYTHONNOUSERSITE"):
                place = user or os.path.join(home or "", ".local")
                self.sites += self._searched([os.path.join(place, "lib", f"python{self.minor}", "site-packages")])
            self.sites += self._searched(self._below(base))
            if base == "/usr":  # Debian has a separate directory for pip's packages
                self.sites += self._searched([f"/usr/local/lib/python{self.minor}/dist-packages"])
        self.sites = list(dict.fromkeys(os.path.abspath(site) for site in self.sites))
        self._base = base
        self._packages: Optional[List[Installed]] = None

    def _searched(self, sites: Iterable[str]) -> Iterator[str]:
        """Sites, each with the directories that its `.pth` files name."""
        for site in sites:
            named = list(self._read.directories_of_pth(site))
            self.beside += named
            yield from (site, *named)

    def _below(self, prefix: str) -> List[str]:
        names = [f"lib/python{self.minor}/site-packages", f"lib64/python{self.minor}/site-packages"]
        names += [f"lib/python{self.minor}/dist-packages", "lib/python3/dist-packages"]
        return [path for path in (os.path.join(prefix, name) for name in names) if self._read.exists(path)]

    def _settings(self, path: str) -> Optional[Dict[str, str]]:
        """The settings in `pyvenv.cfg` of a virtual environment; None if there is none."""
        if not self._read.exists(path):
            return None
        pairs = (line.partition("=") for line in self._read.text(path).splitlines())
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def _minor(self, prefix: str) -> str:
        """The minor version such as `3.11`: from the program's name, else from the directory beside it."""
        for name in (os.path.basename(self._real), *reversed(self._read.listed(os.path.join(prefix, "lib")))):
            match = _OF_DIRECTORY.match(name)
            if match:
                return match[1]
        return "3"

    def fingerprint(self) -> List[object]:
        """Changes whenever a package is added or removed or the interpreter is replaced. Costs a few calls of the system."""
        entries = (os.path.join(site, name) for site in self.beside for name in self._read.listed(site))
        notes = [os.path.join(entry, "PKG-INFO") for entry in entries if entry.endswith(".egg-info")]
        return [[path, self._read.changed_ns(path)] for path in (self.python, self._real, *self.sites, *notes)]

    def version(self) -> str:
        """The version from the interpreter's headers, executable or library; else the minor version."""
        header = self._read.text(os.path.join(self._base, "include", f"python{self.minor}", "patchlevel.h"))
        match = _HEADER.search(header)
        if match:
            return match[1]
        names = [f"libpython{self.minor}.so.1.0", f"libpython{self.minor}.so", f"libpython{self.minor}.dylib"]
        libraries = [os.path.join(self._base, place, name) for place in _LIBRARIES for name in names]
        for path in (self._real, *libraries):
            found = _version_in(path, self.minor)
            if found is not None:
                return found
        return self.minor

    def packages(self) -> Tuple[Dict[str, str], List[str]]:
        """(normalized name -> version, names of editable installs)."""
        found = self._found()
        return {one.name: one.version for one in found}, sorted(one.name for one in found if self._is_editable(one))

    def editable_sources(self) -> Dict[str, str]:
        """Normalized names of editable installs -> the directories that they were installed from."""
        found = {one.name: self._source(one) for one in self._found() if self._is_editable(one)}
        return {name: source for name, source in found.items() if source is not None}

    def built_from(self, editable: Collection[str]) -> Dict[str, str]:
        """Packages installed from a directory, a file or a repository -> what identifies their code; "" if nothing does.

        The code of an `editable` one is elsewhere. The same version of one from an index has the same code.
        """
        found: Dict[str, str] = {}
        for one in self._found():
            told = self._read.direct_url(one.directory) if one.name not in editable else None
            if told is not None:
                found[one.name] = self._read.code_of(told, one.directory)
        return found

    def unnamed(self) -> List[str]:
        """Directories that `.pth` files name and that have no metadata of a package: nothing tells what code is there."""
        told = {*(os.path.dirname(one.directory) for one in self._found()), *self.editable_sources().values()}
        return [path for path in dict.fromkeys(self.beside) if not any(_lies_in(path, place) for place in told)]

    def unread(self) -> List[str]:
        """What could not be read so far, the first few, with the reason: packages may be missing."""
        return [f"{path} ({why})" for path, why in self._read.unread.items()][:_UNREAD_MAX]

    def _is_editable(self, one: Installed) -> bool:
        return one.developed or package_metadata.is_editable(self._read.direct_url(one.directory))

    def _source(self, one: Installed) -> Optional[str]:
        if one.developed:
            return os.path.dirname(one.directory)
        return package_metadata.source(self._read.direct_url(one.directory) or {})

    def _found(self) -> List[Installed]:
        """The packages that it imports, each once, in the order of its path."""
        if self._packages is None:
            found: Dict[str, Installed] = {}
            for site in self.sites:
                for one in self._read.installed(site, site in self.beside):
                    found.setdefault(one.name, one)
            self._packages = list(found.values())
        return self._packages

    def torch(self, packages: Mapping[str, str]) -> Optional[Torch]:
        """Versions of the installed torch, without importing it; None if there is none, or its build is not known."""
        if "torch" not in packages:
            return None
        lines = next(filter(None, (self._read.text(os.path.join(site, "torch", "version.py")) for site in self.sites)), "")
        if not lines:
            return None
        return {"version": packages["torch"], "cuda": _assigned(lines, "cuda"), "hip": _assigned(lines, "hip")}


def _version_in(path: str, minor: str) -> Optional[str]:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(minor.encode() + b".")
            while at >= 0:
                match = _PATCH.match(data[at : at + _VERSION_MAX])
                if match:
                    return match[1].decode()
                at = data.find(minor.encode() + b".", at + 1)
    except (OSError, ValueError):
        return None
    return None


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _assigned(lines: str, name: str) -> Optional[str]:
    match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", lines, re.MULTILINE)
    return match[1] if match else None
