"""Finds the Python of a command and its installed packages by reading directories; no interpreter is started.

Names and versions come from the `*.dist-info` and `*.egg-info` directories. Packages on paths that a program adds to
`sys.path` itself are not seen.
"""

from __future__ import annotations

import mmap
import os
import re

from trainmaster.agent.environment import command_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, List, Mapping, Optional, Tuple

    from trainmaster.wire.environment import Torch

_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*\Z")
_WORD = re.compile(r"(?:^|[\s;&|(=\"'])([^\s;&|(=\"']*python[0-9.]*)(?=[\s\"']|$)")
_OF_DIRECTORY = re.compile(r"(?:pypy|python)(\d+\.\d+)\Z")
_EGG = re.compile(r"(.+?)-([^-]+)(?:-py\d[\d.]*.*)?\Z")
_SEPARATORS = re.compile(r"[-_.]+")
_HEADER = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_PATCH = re.compile(rb"(\d+\.\d+\.\d+(?:[abc]\d+|rc\d+)?\+?)\0")  # as a C string in the executable
_URL = re.compile(r'"url": "file://([^"\\]*)"')
_COMMIT = re.compile(r'"commit_id": ?"([0-9a-f]+)"')
_INDEX = "index"
_DIGITS = 12
_VERSION_MAX = 20
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
        certain = whole and len(named) == len(seen) and len(alike) == 1 and not _head(named[0]).startswith(b"#!")
        return named[0], certain
    written = _WORD.findall(command[-1] if shell else " ".join(command))
    guessed = (_python_of(word, environment, work) for word in (*written, "python", "python3"))
    return next((path for path in guessed if path is not None), None), False


def _python_of(word: str, environment: Mapping[str, str], work: str) -> Optional[str]:
    """The Python that a program is, or in which it runs as a script; None if it is neither, or not found."""
    path = _found(word, environment, work)
    if path is None or _PYTHON.match(os.path.basename(word)):
        return path
    line = _head(path)
    if not line.startswith(b"#!/"):
        return None
    program, _, argument = os.fsdecode(line[2:].strip()).partition(" ")
    if os.path.basename(program) == "env" and _PYTHON.match(argument):
        return _found(argument, environment, work)
    return program if _PYTHON.match(os.path.basename(program)) and os.path.isfile(program) else None


def _head(path: str) -> bytes:
    """The first line of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_SHEBANG_MAX).split(b"\n", 1)[0]
    except OSError:
        return b""


def _found(word: str, environment: Mapping[str, str], work: str) -> Optional[str]:
    """The path of a program in a command line, by the rules of the system."""
    if "/" in word:
        path = os.path.join(work, os.path.expanduser(word))
        return path if os.path.isfile(path) else None
    for directory in environment.get("PATH", "").split(os.pathsep):
        path = os.path.join(directory, word)
        if directory and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


class Installation:
    """One interpreter and the directories from which it imports packages, in order."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self.python = os.path.abspath(python)
        self._real = os.path.realpath(self.python)
        prefix = os.path.dirname(os.path.dirname(self.python))
        settings = _settings(os.path.join(prefix, "pyvenv.cfg"))
        base = os.path.dirname(os.path.dirname(self._real))
        self.minor = _minor(self._real, prefix if settings is not None else base)
        self.sites = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if settings is not None:
            self.sites += self._below(prefix)
        if settings is None or settings.get("include-system-site-packages", "").lower() == "true":
            home = environment.get("HOME")
            if home and not environment.get("PYTHONNOUSERSITE"):
                self.sites.append(os.path.join(home, ".local", "lib", f"python{self.minor}", "site-packages"))
            self.sites += self._below(base)
            if base == "/usr":  # Debian has a separate directory for pip's packages
                self.sites.append(f"/usr/local/lib/python{self.minor}/dist-packages")
        self.sites = list(dict.fromkeys(os.path.abspath(site) for site in self.sites))
        self._base = base

    def _below(self, prefix: str) -> List[str]:
        names = [f"lib/python{self.minor}/site-packages", f"lib64/python{self.minor}/site-packages"]
        names += [f"lib/python{self.minor}/dist-packages", "lib/python3/dist-packages"]
        return [path for path in (os.path.join(prefix, name) for name in names) if os.path.isdir(path)]

    def fingerprint(self) -> List[object]:
        """Changes whenever a package is added or removed or the interpreter is replaced. Costs a few `stat` calls."""
        return [[path, _changed_ns(path)] for path in (self.python, self._real, *self.sites)]

    def version(self) -> str:
        """The version from the interpreter's headers, executable or library; else the minor version."""
        header = _text(os.path.join(self._base, "include", f"python{self.minor}", "patchlevel.h"))
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
        found: Dict[str, str] = {}
        editable: List[str] = []
        for site in self.sites:
            for name in _listed(site):
                said = _said(name)
                if said is None or said[0] in found:
                    continue
                found[said[0]] = said[1]
                if _is_editable(os.path.join(site, name)):
                    editable.append(said[0])
        return found, sorted(editable)

    def editable_sources(self) -> Dict[str, str]:
        """Normalized names of editable installs -> the directories that they were installed from."""
        from urllib.parse import unquote  # noqa: PLC0415 - only a submit asks for this

        found: Dict[str, str] = {}
        for site in self.sites:
            for name in _listed(site):
                said = _said(name)
                url = _URL.search(_text(os.path.join(site, name, "direct_url.json"))) if said is not None else None
                if said is not None and url and _is_editable(os.path.join(site, name)):
                    found.setdefault(said[0], unquote(url[1]))
        return found

    def built_from(self, editable: Collection[str]) -> Dict[str, str]:
        """Packages installed from a directory, a file or a repository -> what identifies their code; "" if nothing does.

        The code of an `editable` one is elsewhere. The same version of one from an index has the same code.
        """
        found: Dict[str, str] = {}
        for site in self.sites:
            for name in _listed(site):
                said = _said(name)
                if said is None or said[0] in found or said[0] in editable:
                    continue
                url = _text(os.path.join(site, name, "direct_url.json"))
                commit = _COMMIT.search(url)
                found[said[0]] = f"commit {commit[1][:_DIGITS]}" if commit else _files_digest(site, name) if url else _INDEX
        return {name: told for name, told in found.items() if told != _INDEX}

    def torch(self, packages: Mapping[str, str]) -> Optional[Torch]:
        """Versions of the installed torch, without importing it."""
        if "torch" not in packages:
            return None
        text = next(filter(None, (_text(os.path.join(site, "torch", "version.py")) for site in self.sites)), "")
        return {"version": packages["torch"], "cuda": _assigned(text, "cuda"), "hip": _assigned(text, "hip")}


def _minor(real: str, prefix: str) -> str:
    """The minor version such as `3.11`: from the program's name, else from the directory beside it."""
    for name in (os.path.basename(real), *sorted(_listed(os.path.join(prefix, "lib")), reverse=True)):
        match = _OF_DIRECTORY.match(name)
        if match:
            return match[1]
    return "3"


def _settings(path: str) -> Optional[Dict[str, str]]:
    """The settings in `pyvenv.cfg` of a virtual environment; None if there is none."""
    if not os.path.isfile(path):
        return None
    pairs = (line.partition("=") for line in _text(path).splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


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


def _said(name: str) -> Optional[Tuple[str, str]]:
    """(name, version) from the name of a metadata directory."""
    stem, dot, ending = name.rpartition(".")
    if not dot or ending not in ("dist-info", "egg-info"):
        return None
    if ending == "dist-info":
        project, dash, version = stem.rpartition("-")
    else:
        match = _EGG.match(stem)
        project, dash, version = (match[1], "-", match[2]) if match else ("", "", "")
    return (_SEPARATORS.sub("-", project).lower(), version) if dash and project else None


def _is_editable(directory: str) -> bool:
    return '"editable": true' in _text(os.path.join(directory, "direct_url.json"))


def _files_digest(site: str, name: str) -> str:
    """Of the digests of a package's files, as its installer recorded them; "" if it did not."""
    import hashlib  # noqa: PLC0415 - few packages need it

    rows = (line.split(",") for line in _text(os.path.join(site, name, "RECORD")).splitlines())
    # What the installer itself writes names the environment: its notes, programs in `bin`, and compiled files without a digest.
    own = sorted(",".join(row) for row in rows if len(row) > 1 and row[-2] and not row[0].startswith(("../", "/", f"{name}/")))
    return f"files {hashlib.sha256(chr(10).join(own).encode()).hexdigest()[:_DIGITS]}" if own else ""


def _listed(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _assigned(text: str, name: str) -> Optional[str]:
    match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None
