"""What a command names that nobody recorded: paths outside of the copy, and programs that install packages. Pure.

A command is only read, never run: what a script of it names is not seen, and `BY_ITSELF` says so.
"""

import os
import re
from collections.abc import Iterator

from trainmaster.model import redaction
from trainmaster.model.job import Job
from trainmaster.model.options.placeholders import Command, filled, unread, values_of
from trainmaster.wire.environment import EnvironmentRecord

_LISTED_MAX = 10  # paths told by name
BY_ITSELF = "what the program reads from elsewhere by itself, such as paths in its code and downloads: nobody looks at it"
_URL = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s;&|<>"'`,\[\]]*""")  # with the parentheses of a hidden password
_WORD = re.compile(r"""[^\s;&|()<>"'`,\[\]=:@]+""")
_STUCK = re.compile(r"-[A-Za-z](?=[/~])")  # -I/opt/include
_HERE = re.compile(r"\$(?:PWD\b|\{PWD\})/?")
_ELSEWHERE = re.compile(r"[/~]|\$(?:\w+|\{\w+\})/|\$(?:HOME|OLDPWD|\{HOME\}|\{OLDPWD\})\Z|\.\.(?:/|\Z)")
_ADDRESSES = re.compile(r"(?:tcp|env)://|http://(?:localhost|127\.[\d.]+)(?::\d+)?/?\Z")  # they lead to no files
_OWN = ("$TMPDIR/", "${TMPDIR}/", "$TRAINMASTER_", "${TRAINMASTER_")  # in the job's own directories
_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/dev", "/proc", "/sys")
_MEMORY = "/dev/shm"  # files like any others
_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*\Z")
_INSTALLER = re.compile(r"(?:pip[0-9.]*|uv|conda|mamba|micromamba|pixi|poetry|pdm|pipx|apt|apt-get|setup\.py)\Z")
_VERBS = ("install", "sync", "add", "update", "upgrade", "develop", "create", "remove", "uninstall")
_BETWEEN = ("pip", "env", "tool")  # of `uv pip install` and `conda env update`
_PIECES = re.compile(r"""[;&|()\n]+|[^\s;&|()"'`]+""")
_TOLD_ELSEWHERE = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "TMPDIR")


def unrecorded(job: Job, record: EnvironmentRecord | None) -> Iterator[str]:
    """Each as a clause with its reason. `record`: of the environment that its last attempt ran in."""
    python = record["python"] if record is not None else None
    if record is not None:
        yield from doubts(record)
        yield from builds(record)
    found = outside(job, python["path"] if python is not None else None)
    for path, named in found[:_LISTED_MAX]:
        if not job.code.in_place and _lies_in(path, job.origin.directory):
            yield f"{path}, named by {named}: it is read where it is, not from the copy"
        else:
            yield f"{path}, named by {named}: it is used where it is, and nothing of it is recorded"
    if len(found) > _LISTED_MAX:
        yield f"{len(found) - _LISTED_MAX} more paths that its command or its parameters name: nothing of them is recorded"
    installing = installers(job)
    if installing:
        yield f"packages: its command installs some ({', '.join(installing)}), and the record is of those before"


def doubts(record: EnvironmentRecord) -> Iterator[str]:
    """Why the packages of a record may not be those that the program imports."""
    python = record["python"]
    if python is None:
        yield "Python and packages: no Python was found for its command"
    elif not python.get("certain"):
        yield f"Python and packages: those of {python['path']} are recorded, and its command may start another Python"
    for told in record.get("unread", ()):
        yield f"packages: {redaction.text(told)} could not be read, so some may be missing in the record"


def builds(record: EnvironmentRecord) -> Iterator[str]:
    """Packages whose version alone does not identify their code, and code of no package."""
    if "built_from" not in record and record["packages"]:
        yield "packages from a directory or a repository: an older version recorded nothing but their version"
    for name, told in record.get("built_from", {}).items():
        if not told:
            yield f"package {name}: it is not from an index, and nothing but its version is recorded"
    for path in record.get("unnamed", ()):
        yield f"{redaction.text(path)}, to which a .pth file of its Python leads: nothing of it is recorded"


def outside(job: Job, python: str | None = None) -> list[tuple[str, str]]:
    """Paths and URLs that a program can read although they are not recorded, credentials masked, each with what names it."""
    found: dict[str, str] = {}
    for text, named, whole in _texts(job):
        for path in _places(text, whole):
            if not _is_told(path, job, python):
                found.setdefault(path, named)
    return list(found.items())


def _places(text: str, whole: bool) -> Iterator[str]:
    """The URLs in a text, and its paths that may lead out of the directory in which the command starts."""
    if whole and _ELSEWHERE.match(text) and "://" not in text:
        yield _normal(text)
        return
    for url in _URL.findall(text):
        yield url.rstrip("/")
    for word in _WORD.findall(_URL.sub(" ", text)):
        stuck = _STUCK.match(word)
        path = _normal(_HERE.sub("./", word if stuck is None else word[stuck.end() :]))
        if _ELSEWHERE.match(path):
            yield path


def _normal(path: str) -> str:
    """Without `.`, and `..` as far as they cancel out by the text alone: a name that is a variable may have several parts."""
    known = "$" not in path and not path.startswith("~")
    return os.path.normpath(path).replace("//", "/") if known else path.rstrip("/")


def installers(job: Job) -> list[str]:
    """The programs of its commands that install packages, such as `pip install`, each once."""
    found: dict[str, None] = {}
    for command, _ in _commands(job):
        program: list[str] = []
        for piece in _PIECES.findall(command if isinstance(command, str) else " ".join(command)):
            if piece[0] in ";&|()\n":
                program = []
            elif _INSTALLER.match(os.path.basename(piece).removeprefix("-m")) and not program:
                program = [os.path.basename(piece).removeprefix("-m")]
            elif program and piece in _VERBS:
                found[" ".join([*program, piece])] = None
                program = []
            elif program and piece in _BETWEEN:
                program.append(piece)
            elif program and not piece.startswith("-"):
                program = []
    return list(found)


def _commands(job: Job) -> Iterator[tuple[Command, str]]:
    """Its commands as they run, credentials masked."""
    values = values_of(job.spec)
    yield redaction.command(filled(job.spec.command, values)), "its command"
    for name, role in job.spec.roles.items():
        yield redaction.command(filled(role.command, values)), f"its role {name}"


def _texts(job: Job) -> Iterator[tuple[str, str, bool]]:
    """All that may name a path: commands, parameters that its program reads, variables of the job; what it is; whether it is
    one value, which may have spaces.
    """
    for command, named in _commands(job):
        if isinstance(command, str):
            yield command, named, False
        else:
            yield from ((text, named, before != "-c") for before, text in zip(("", *command), command, strict=False))
    if job.spec.checkpoint.resume_arguments:
        yield redaction.line(job.spec.checkpoint.resume_arguments), "its resume arguments", False
    recorded = unread(job.spec, job.origin)
    for name, value in redaction.values(job.spec.params).items():
        if isinstance(value, str) and name not in recorded:
            yield value, f"its parameter {name}", True
    for name, text in redaction.without_secrets(job.spec.environment.variables).items():
        if name not in _TOLD_ELSEWHERE:
            yield redaction.text(text), f"its variable {name}", ":" not in text


def _is_told(path: str, job: Job, python: str | None) -> bool:
    """Whether it is recorded, listed for another reason, or no file of a program."""
    if path == "/" or path.startswith(_OWN) or _ADDRESSES.match(path):
        return True
    if any(_lies_in(path, place) for place in _SYSTEM) and not _lies_in(path, _MEMORY):
        return True
    if any(_lies_in(path, one.uri) for one in job.data):
        return True
    if _PYTHON.match(os.path.basename(path)) or (python is not None and os.path.dirname(path) == os.path.dirname(python)):
        return True
    return job.code.in_place and _lies_in(path, job.origin.directory)


def _lies_in(path: str, directory: str) -> bool:
    """Whether it is the directory or in it, by its text."""
    above = directory.rstrip("/")
    if path.startswith("/"):
        path = os.path.normpath(path)
    return bool(above) and (path == above or path.startswith(f"{above}/"))
