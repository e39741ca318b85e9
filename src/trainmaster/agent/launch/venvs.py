"""Virtual environments from requirements files: one per digest, built once per node and shared by all jobs that need it.

    <root>/<digest>/        pyvenv.cfg, bin/ ...: the output of `python -m venv` and pip, built at its final path
    <root>/<digest>.json    {"bytes"}: written last, by rename; an environment without it is incomplete and never used
    <root>/<digest>.lock    flock: exclusive while it is built or removed, shared while it is used
    <root>/<digest>.log     output of pip
    <root>/<digest>.failed  pip's last lines, for jobs that waited for this build

Programs in `bin/` contain the environment's path in their first line, so it cannot be moved after the build. The record
beside it says that it is complete. The digest covers pip's input: the requirements and the files that they include, the
interpreter, the platform, and the `PIP_*` variables.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

from trainmaster.agent.launch import venv_use
from trainmaster.agent.processes import spawn
from trainmaster.agent.processes.spawn import OF_THE_PROGRAM, LaunchError, MachineError
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.wire.launch import Launch

_LOOK_S = 0.1
_LAST_LINES = 20
_FILE_MAX_BYTES = 4 * 1024 * 1024
_DEPTH_MAX = 8  # of requirements files that include others
_INCLUDES = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s+|\s*=\s*|(?=\S))(?P<path>\S+)\s*\Z")
_EDITABLE = re.compile(r"(?:-e|--editable)\b")
_PLACE = re.compile(r"(?:\.{1,2}(?:/|\Z)|/|file:|[\w.-]+\s*@\s*file:)")
# Messages of pip when the network, the index or the disk failed: a retry of the same requirements may succeed.
_TROUBLE = (
    "after connection broken by", "connection refused", "connection reset", "connection aborted", "timed out",
    "temporary failure in name resolution", "name or service not known", "network is unreachable", "no route to host",
    "no space left on device", "disk quota exceeded", "cannot allocate memory", "memoryerror", "too many open files",
    "input/output error", "read-only file system", "server error: ",
)  # fmt: skip
_ASK = "import json, sys, sysconfig; print(json.dumps([sys.executable, sys.version, sysconfig.get_platform()]))"


class Venv:
    """An environment in use by this agent, until `release`."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    def environment(self, environment: dict[str, str]) -> dict[str, str]:
        """The variables of a program that runs in it."""
        path = os.path.join(self.path, "bin") + os.pathsep + environment.get("PATH", os.defpath)
        changed = {**environment, "PATH": path, "VIRTUAL_ENV": self.path}
        changed.pop("PYTHONHOME", None)
        return changed

    def release(self) -> None:
        """Release the lock, so that the environment may be removed."""
        os.close(self._lock)


def provide(launch: Launch, directory: str, check: Callable[[], None], began: Callable[[str], None]) -> Optional[Venv]:
    """The environment that the job requires, built if it does not exist; None if the job requires none.

    `check` is called often and may raise to cancel; the build is then killed. `began` is called with what takes time.
    Raises: LaunchError, MachineError if a retry may succeed, OSError, and what `check` raises.
    """
    wanted = launch["requirements"]
    if wanted is None:
        return None
    file = os.path.join(launch["work"], wanted["file"])
    python = _python(wanted["python"], launch["environment"])
    identity = _identity(python, launch)
    path = os.path.join(wanted["root"], _digest(file, identity, launch["environment"]))
    os.makedirs(wanted["root"], mode=0o700, exist_ok=True)
    waited_s = time.time()
    told = False
    while True:
        lock = venv_use.locked(path, shared=os.path.exists(f"{path}.json"))
        if lock is None:
            if not told:
                began(f"waiting for the environment of {wanted['file']}, which another job makes")
                told = True
            _refuse_failed(path, waited_s)
            check()
            time.sleep(_LOOK_S)
            continue
        if os.path.exists(f"{path}.json"):
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.exists(f"{path}.json"):  # changing the lock's type may release it for a moment
                os.utime(f"{path}.json")
                return Venv(path, lock)
        elif _is_exclusive(lock):
            began(f"building the environment from {wanted['file']}")
            try:
                _make(path, [python, file], (launch, directory, lock), check)
                venv_use.make_room(wanted["root"], wanted["max_bytes"], path)
            except BaseException:
                os.close(lock)
                raise
        os.close(lock)


def _is_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse_failed(path: str, waited_s: float) -> None:
    """A job that waited for a build that failed does not repeat it. Raises: LaunchError with that build's error."""
    try:
        if os.stat(f"{path}.failed").st_mtime < waited_s:
            return
        with open(f"{path}.failed") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return
    raise (MachineError if told.get("machine") else LaunchError)(told["text"], told["lines"])


def _python(named: Optional[str], environment: dict[str, str]) -> str:
    """Absolute path of the interpreter. Raises: LaunchError."""
    for name in [named] if named else ["python3", "python"]:
        found = shutil.which(name, path=environment.get("PATH", os.defpath))
        if found is not None:
            return os.path.abspath(found)
    what = f"environment.python names {named}, and" if named else "environment.requirements needs an interpreter, and"
    raise LaunchError(f"{what} there is none on this node; name another with environment.python (--python)")


def _identity(python: str, launch: Launch) -> list[str]:
    """Path, version and platform of the interpreter. Raises: LaunchError."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK], env=launch["environment"], capture_output=True, timeout=60, check=True, text=True
        )
        return [os.path.realpath(python), *map(str, json.loads(done.stdout))]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or "").splitlines()[-_LAST_LINES:]
        refused = isinstance(error, OSError) and error.errno not in OF_THE_PROGRAM
        killed = isinstance(error, subprocess.CalledProcessError) and error.returncode < 0
        if refused or killed or isinstance(error, subprocess.TimeoutExpired):
            raise MachineError(f"{python} could not be asked for its version: {error}", said) from error
        raise LaunchError(f"{python} is not a working Python: {error}", said) from error


def _digest(file: str, identity: list[str], environment: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(identity).encode())
    for name, data in _sources(file, 0, []):
        digest.update(f"\0{name}\0{hashlib.sha256(data).hexdigest()}".encode())
    digest.update(json.dumps(sorted(pair for pair in environment.items() if pair[0].startswith("PIP_"))).encode())
    return digest.hexdigest()


def _sources(file: str, depth: int, seen: list[str]) -> list[tuple[str, bytes]]:
    """(name, content) of a requirements file, its included files and packages given by path. Raises: LaunchError."""
    data = _content(file)
    found = [(os.path.basename(file), data)]
    text = re.sub(r"\\\r?\n", " ", data.decode("utf-8", "replace"))
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(?:^|\s)#.*", "", line).strip()
        if _EDITABLE.match(line):
            raise LaunchError(
                f"{os.path.basename(file)}:{number}: `{line}` would install one job's work directory into an environment that "
                "others share; leave it out: a program finds what lies beside it, or set PYTHONPATH in environment.variables"
            )
        included = _INCLUDES.match(line)
        if included is not None and "://" not in included["path"]:
            path = os.path.join(os.path.dirname(file), included["path"])
            if depth < _DEPTH_MAX and path not in seen:
                seen.append(path)
                found += _sources(path, depth + 1, seen)
        elif _PLACE.match(line):
            found.append(_package(file, number, line))
    return found


def _package(file: str, number: int, line: str) -> tuple[str, bytes]:
    """A package given by its path, which pip resolves relative to the work directory."""
    name = line.partition(" @ ")[2] or line
    name = re.split(r"\s|;|\[", name.partition("file://")[2] or name)[0]
    path = os.path.join(os.path.dirname(file), name)
    if os.path.isdir(path):
        raise LaunchError(
            f"{os.path.basename(file)}:{number}: `{line}` is a directory, whose content may change under an environment that "
            "jobs share; name a wheel of it (`pip wheel --no-deps`), or leave it out and import it from the work directory"
        )
    return name, _content(path)


def _content(path: str) -> bytes:
    """Raises: LaunchError."""
    try:
        with open(path, "rb") as file:
            return file.read() if path.endswith((".whl", ".gz", ".zip")) else file.read(_FILE_MAX_BYTES)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
            raise MachineError(f"the requirements file {path} cannot be read now: {error.strerror}") from error
        advice = "check environment.requirements, and that git does not ignore the file"
        raise LaunchError(f"the requirements file {path} cannot be read: {error.strerror}; {advice}") from error


def _make(path: str, what: list[str], context: tuple[Launch, str, int], check: Callable[[], None]) -> None:
    """Build the environment and write the record of completeness. Raises: LaunchError, OSError, what `check` raises."""
    python, file = what
    venv_use.discard(path)
    commands = [
        [python, "-m", "venv", path],
        [os.path.join(path, "bin", "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", file],
    ]
    with open(f"{path}.log", "wb") as log:
        for command in commands:
            code = _run(command, context, log, check)
            if code != 0:
                _fail(path, command, file, code)
    part = f"{path}.json.part"
    with open(part, "w") as record:
        json.dump({"bytes": venv_use.size_bytes(path), "requirements": os.path.basename(file), "python": python}, record)
        record.flush()
        os.fsync(record.fileno())
    os.rename(part, f"{path}.json")


def _run(command: list[str], context: tuple[Launch, str, int], log: Any, check: Callable[[], None]) -> int:
    """Run one program to its end; returns its exit code. It holds the lock, and carries the attempt's key if the agent dies."""
    launch, directory, lock = context
    environment = {name: value for name, value in launch["environment"].items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment[names.ENV_KEY] = launch["key"]
    environment[names.ENV_SDK] = os.path.join(directory, "environment.sdk")
    process = subprocess.Popen(
        command, cwd=launch["work"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        pass_fds=(lock,),
    )  # fmt: skip
    spawn.contain(process.pid, launch)
    try:
        while True:
            try:
                return process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                check()
    finally:
        venv_use.end(process)


def _fail(path: str, command: list[str], file: str, code: int) -> None:
    """Raises: LaunchError with the output; MachineError if the output points to the network, the disk or memory."""
    with open(f"{path}.log", errors="replace") as log:
        tail = log.read()[-65536:]
    lines = [line.rstrip()[:400] for line in tail.splitlines() if line.strip()][-_LAST_LINES:]
    machine = code < 0 or any(trouble in tail.lower() for trouble in _TROUBLE)
    making = "pip could not install" if "pip" in command else "`python -m venv` could not make an environment for"
    said = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else f"exit code {code}")
    text = f"{making} {os.path.basename(file)}: {said}"
    venv_use.discard(path)
    with open(f"{path}.failed", "w") as record:
        json.dump({"text": text, "lines": lines, "machine": machine}, record)
    sys.stderr.write(f"{text}; the full output is in {path}.log\n")
    raise (MachineError if machine else LaunchError)(text, lines)
