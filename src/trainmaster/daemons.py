"""The life of the two server processes on this machine: start, revive, stop.

Standard library only: the command line reads this before anything heavy is loaded. Who starts, revives or stops holds
the lock `up`; which processes live is `presence`'s to say.
"""

import contextlib
import errno
import http.client
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainmaster import anew
from trainmaster.ending import end, stop_spawner
from trainmaster.errors import ConflictError, DiskFullError, OperationError, TrainmasterError, UsageError
from trainmaster.home import Home, account_name, write_atomic
from trainmaster.locks import LOOK_S, hold, holder, inode, wait_for
from trainmaster.presence import BESIDE, PROCESSES, ServerInfo, alive, copied_from, lives, ready, recorded, running
from trainmaster.wire.answers import Answer
from trainmaster.wire.names import ENV_FAILPOINT
from trainmaster.wire.processes import start_ticks

START_TIMEOUT_S = 30.0
_HEAR_S = 5.0
_OUT_MAX_BYTES = 1024 * 1024
_SHOWN_LINES = 5


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may say of the server; None leaves it as it is."""

    host: str | None = None
    port: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: float | None = None
    gpu_kind: str | None = None
    failpoints: bool = False
    mlflow: bool | None = None
    mlflow_port: int | None = None
    new_log: bool = False

    def given(self) -> dict[str, Any]:
        """What was said, as `settings.json` holds it; of what may be changed while the server runs, see `tracked`."""
        said = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return {name: value for name, value in said.items() if name not in (*_TRACKED, "new_log")}

    def tracked(self) -> dict[str, Any]:
        """What was said of the mirror."""
        return {name: value for name in _TRACKED if (value := getattr(self, name)) is not None}


_TRACKED = ("mlflow", "mlflow_port")


@dataclass(frozen=True, slots=True)
class StopReport:
    """What a stop found: processes that ended, and those among them that had to be killed."""

    stopped: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Child:
    """A process being started. Its end of the pipe stays open while it lives."""

    which: str
    pipe: int
    log: Path
    said: bytes = b""
    identity: tuple[int, int] | None = None
    error: dict[str, str] = field(default_factory=dict)

    def read(self) -> bytes:
        """What it says now: who it is, then perhaps why it ends; nothing once it has ended."""
        data = os.read(self.pipe, 65536)
        *lines, self.said = (self.said + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "pid" in said:
                self.identity = (said["pid"], said["start_ticks"])
            else:
                self.error = said
        return data


def start(home: Home, options: Options | None = None) -> ServerInfo:
    """Bring up whatever of the server is not running, and wait until all of it answers.

    Raises: UsageError, ConflictError (it runs with other settings), OperationError, DiskFullError.
    """
    options = options or Options()
    _prepare(home)
    with hold(home, "up"):
        _refuse_copy(home)
        settings = home.read_json(home.settings_json) or {}
        _check_failpoint(options.failpoints or bool(settings.get("failpoints")))
        dead = [which for which in PROCESSES if not alive(home, which)]
        said, all_dead = options.given(), len(dead) == len(PROCESSES)
        tracked = {name: settings[name] for name in _TRACKED if name in settings} | options.tracked()
        if not all_dead and any(settings.get(name) != value for name, value in said.items()):
            raise ConflictError(f"a server with other settings runs on {home.root}", "stop it first: tm down")
        if options.new_log:
            _begin_anew(home, all_dead)
        kept = {name: value for name, value in settings.items() if name not in _TRACKED}
        wanted = {**(said if said and all_dead else kept), **tracked}
        if wanted != settings:
            write_atomic(home.settings_json, json.dumps(wanted).encode())
        if any(settings.get(name) != value for name, value in options.tracked().items()):
            end(_living(home, BESIDE))  # to begin again as was said
        mirrored = _is_mirrored(home)
        (home.root / "stopping").unlink(missing_ok=True)
        _bring_up(home, PROCESSES)
        trouble, beside = _bring_up_mirror(home) if mirrored else ("", ())
        info = running(home)
    if info is None:
        raise OperationError(f"the server on {home.root} came up and went away again", f"see {home.logs}")
    return info._replace(started=(*dead, *beside), trouble=trouble)


def _refuse_copy(home: Home) -> None:
    """Nothing is started or stopped in the copy of a home whose server runs: its jobs' agents are that server's.

    Raises: ConflictError.
    """
    with contextlib.suppress(OSError):  # then who holds the locks decides, as ever
        original = copied_from(home)
        if original is not None:
            what = f"{home.root} is a copy of {original}, whose server runs"
            raise ConflictError(what, f"talk to it with TRAINMASTER_HOME={original}; to copy a home: tm backup, tm restore")


def _begin_anew(home: Home, all_dead: bool) -> None:
    """Set the old log aside. Raises: ConflictError while a server works on it, OperationError."""
    if not all_dead:
        raise ConflictError(f"a server runs on {home.root}: its log is in use", "stop it first: tm down")
    try:
        anew.begin(home)
    except OSError as error:
        raise OperationError(f"the old log could not be set aside: {error}", f"check {home.root}") from error


def _is_mirrored(home: Home) -> bool:
    """Whether any project's runs go into a tracker. Raises: UsageError for a `server.toml` that cannot be understood."""
    from trainmaster import configuration  # noqa: PLC0415  only a start reads it

    return bool(configuration.load(home).all_sinks)


def _bring_up_mirror(home: Home) -> tuple[str, tuple[str, ...]]:
    """Start the mirror unless it runs; why it could not be, and what was started."""
    if alive(home, BESIDE[0]):
        return "", ()
    try:
        _bring_up(home, BESIDE[:1], first=False)
    except (TrainmasterError, OSError) as error:
        hint = getattr(error, "hint", "")
        return f"{error}" + (f" ({hint})" if hint else ""), ()
    return "", BESIDE[:1]


def revive(home: Home, which: str) -> bool:
    """Bring one process back unless it runs or the server was stopped; whether that was needed.

    Raises: OperationError and what else kept it from coming up.
    """
    with hold(home, "up"):
        if (home.root / "stopping").exists() or alive(home, which) or (which in BESIDE and not _is_mirrored(home)):
            return False
        _bring_up(home, [which], first=False)
    return True


def stop(home: Home) -> StopReport:
    """End the server's processes, the spawner included; jobs go on. Harmless where none runs, and needs no room on the disk.

    Raises: OperationError when another start or stop does not finish, ConflictError for a copy of a home whose server runs.
    """
    if not home.root.is_dir():
        return StopReport()
    with hold(home, "up"):
        _refuse_copy(home)
        living = _living(home, (*PROCESSES, *BESIDE))
        with contextlib.suppress(OSError):  # a disk that takes nothing: the lock alone keeps all from being brought back
            home.server_json.unlink(missing_ok=True)  # first: it makes room for another file, where there is none
            (home.root / "stopping").touch()  # nobody revives from here on
        killed = end(living)
        spawner = stop_spawner(home)
    return StopReport((*living, *spawner), killed)


def _living(home: Home, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    try:
        record = recorded(home)
    except OSError:
        record = {}  # who holds the locks is to be told all the same
    found = {which: _identity(home, record, which) for which in names}
    return {which: identity for which, identity in found.items() if identity is not None}


def _bring_up(home: Home, wanted: Sequence[str], first: bool = True) -> None:
    """Start those that are dead, or die meanwhile, and wait for all; what was started is ended again when one fails."""
    children: list[_Child] = []
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not all(ready(home, which) for which in wanted):
            started = {child.which for child in children}
            dead = [which for which in wanted if which not in started and not alive(home, which)]
            children.extend(_spawn(home, which, first) for which in dead)
            _listen(children)
            if time.monotonic() > deadline_s:
                raise _silent(home, next(which for which in wanted if not ready(home, which)))
        if first and not wait_for(lambda: _healthy(home), max(1.0, deadline_s - time.monotonic())):
            raise OperationError(f"the server on {home.root} runs but does not answer", "try: tm down, then tm up")
    except BaseException:
        _hear(children)
        end({child.which: child.identity for child in children if child.identity is not None})
        if len(children) == len(PROCESSES):
            stop_spawner(home)
        raise
    finally:
        for child in children:
            os.close(child.pipe)


def _silent(home: Home, which: str) -> OperationError:
    """Why one is not ready after all that time. One that works without being on record holds its lock."""
    pid = holder(home.lock(which), inode(home.lock(which)))
    if pid is not None and not alive(home, which):
        message = f"{which} runs as process {pid} and is not in {home.server_json}, which was removed or put back from a copy"
        return OperationError(message, "jobs run on meanwhile: tm down, then tm up")
    return OperationError(f"{which} did not come up within {START_TIMEOUT_S:.0f} s", f"see {home.logs}")


def _spawn(home: Home, which: str, first: bool) -> _Child:
    """Start one process, detached: a session of its own, nobody's child, none of our streams."""
    log = home.logs / f"{which}.out"
    environment = dict(os.environ)
    if not first:
        environment.pop(ENV_FAILPOINT, None)  # it has done its work: it would only kill again
    read, write = os.pipe()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if os.fstat(out).st_size > _OUT_MAX_BYTES:
        os.ftruncate(out, 0)
    argv = [sys.executable, "-P", "-m", "trainmaster.server", which, os.fspath(home.root), "--detach", str(write)]
    try:
        subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(write,), start_new_session=True, cwd="/",
            env=environment, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        os.close(read)
        raise OperationError(f"{which} could not be started: {error}", _last_lines(log)) from error
    finally:
        os.close(write)
        os.close(out)
    return _Child(which, read, log)


def _listen(children: list[_Child]) -> None:
    """Hear what those being started say; for a moment at most. Raises: the error with which one of them ended.

    One that found another before it, left behind by a start that was killed, is let go of: that other may serve yet.
    """
    poll = select.poll()  # `select.select` refuses numbers over 1,024, and the api that revives control may have them
    for child in children:
        poll.register(child.pipe, select.POLLIN)
    readable = [descriptor for descriptor, _ in poll.poll(LOOK_S * 1000)]
    for child in [child for child in children if child.pipe in readable]:
        data = child.read()
        if not data and child.error.get("code") != ConflictError.code:
            raise _failure(child)
        if not data:
            os.close(child.pipe)
            children.remove(child)


def _hear(children: Sequence[_Child]) -> None:
    """Learn who they are from those that have not said it yet, so that they can be ended. They say it first of all."""
    for child in children:
        poll = select.poll()
        poll.register(child.pipe, select.POLLIN)
        while child.identity is None and poll.poll(_HEAR_S * 1000) and child.read():
            pass


def _failure(child: _Child) -> TrainmasterError:
    """Why it did not come up: its own words where it had any, else the last lines of its log."""
    if child.error:
        classes = {cls.code: cls for cls in TrainmasterError.__subclasses__()}
        return classes.get(child.error["code"], OperationError)(child.error["message"], child.error["hint"])
    words = _last_lines(child.log) or _last_lines(child.log.with_suffix(".log"))
    return OperationError(f"{child.which} ended while it started:\n{words}", f"see {child.log.parent}")


def _healthy(home: Home) -> bool:
    """Whether api answers and says that control is there."""
    info = running(home)
    if info is None:
        return False
    address = urlsplit(info.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5.0)
    connection.response_class = Answer
    try:
        connection.request("GET", "/healthz")
        return bool(json.loads(connection.getresponse().read()).get("control"))
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _check_failpoint(allowed: bool) -> None:
    """Raises: UsageError when a failpoint is set and the server was not started for tests."""
    if os.environ.get(ENV_FAILPOINT) and not allowed:
        hint = "unset it, or start with --failpoints (tests only)"
        raise UsageError(f"{ENV_FAILPOINT} is set: it kills the server on purpose", hint)


def _prepare(home: Home) -> None:
    """Make the home, and say in words why it cannot be used. Raises: OperationError, DiskFullError, UsageError."""
    hint = "choose another place with TRAINMASTER_HOME"
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = home.root.stat().st_uid
        if owner != os.geteuid():
            raise OperationError(f"{home.root} belongs to {account_name(owner)}, not to {account_name(os.geteuid())}", hint)
        home.logs.mkdir(mode=0o700, exist_ok=True)
        home.lock("up").touch(mode=0o600)
        for path, mode in ((home.root, 0o700), (home.lock("up"), 0o600)):  # of a home made by another hand, or an older version
            if path.stat().st_mode & 0o077:
                path.chmod(mode)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{home.root} is no directory: {error.filename} is a file", hint) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left for {home.root}", "free some space, or " + hint) from error
        raise OperationError(f"{home.root} cannot be written: {error.strerror}", hint) from error


def _identity(home: Home, record: dict[str, Any], which: str) -> tuple[int, int] | None:
    """(pid, start ticks) of a living process: by `server.json`, else by who holds its lock."""
    if lives(record, which):
        return int(record["pids"][which]), int(record["ticks"][which])
    lock = home.lock(which)
    pid = holder(lock, inode(lock))
    ticks = start_ticks(pid) if pid is not None else None
    return (pid, ticks) if pid is not None and ticks is not None else None


def _last_lines(path: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])
    return ""
