"""Starts, revives and stops the server's processes on this machine.

Standard library only: the command line imports this before anything heavy is loaded. A start, revive or stop holds the lock
`up`. Which processes are alive is determined by `live_processes`.
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

from trainmaster import new_log
from trainmaster.errors import ConflictError, DiskFullError, OperationError, TrainmasterError, UsageError
from trainmaster.home import Home, account_name, write_atomic
from trainmaster.live_processes import BESIDE, PROCESSES, ServerInfo, alive, copied_from, lives, ready, recorded, running
from trainmaster.locks import LOOK_S, hold, holder, inode
from trainmaster.termination import end, stop_spawner
from trainmaster.wire.answers import Answer
from trainmaster.wire.names import ENV_FAILPOINT
from trainmaster.wire.processes import cpu_s, start_ticks

START_TIMEOUT_S = 30.0  # without any use of a processor
_START_MAX_S = 300.0
_LOCKED_S = _START_MAX_S + START_TIMEOUT_S + 10.0  # for another start: it holds the lock as long as it lasts
_PROGRESS_S = 0.1  # of processor time
_HEAR_S = 5.0
_OUT_MAX_BYTES = 1024 * 1024
_SHOWN_LINES = 5


@dataclass(frozen=True, slots=True)
class Options:
    """Options that a person may give for the server; None leaves a setting unchanged."""

    port: int | None = None
    listen: str | None = None
    insecure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: float | None = None
    gpu_kind: str | None = None
    failpoints: bool = False
    mlflow: bool | None = None
    mlflow_port: int | None = None
    new_log: bool = False

    def given(self) -> dict[str, Any]:
        """The given options as in `settings.json`, without those that may change while the server runs (`tracked`)."""
        said = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return {name: value for name, value in said.items() if name not in (*_TRACKED, "new_log")}

    def tracked(self) -> dict[str, Any]:
        """The given options of the mirror."""
        return {name: value for name in _TRACKED if (value := getattr(self, name)) is not None}


_TRACKED = ("mlflow", "mlflow_port")


@dataclass(frozen=True, slots=True)
class StopReport:
    """The result of a stop: processes that ended, and those of them that had to be killed."""

    stopped: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Child:
    """A process that is being started. Its end of the pipe stays open while it lives."""

    which: str
    pipe: int
    log: Path
    said: bytes = b""
    identity: tuple[int, int] | None = None
    error: dict[str, str] = field(default_factory=dict)

    def read(self) -> bytes:
        """Read its messages: first its identity, then perhaps the reason of its end. Empty after it has ended."""
        data = os.read(self.pipe, 65536)
        *lines, self.said = (self.said + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "pid" in said:
                self.identity = (said["pid"], said["start_ticks"])
            else:
                self.error = said
        return data


class _Patience:
    """How long a start may take: as long as its processes use a processor, which may be rare on a busy machine."""

    def __init__(self) -> None:
        self._used_s = 0.0
        self._until_s = time.monotonic() + START_TIMEOUT_S
        self._last_s = time.monotonic() + _START_MAX_S

    def ends(self, children: Sequence[_Child]) -> bool:
        """Whether it took too long."""
        now_s, used_s = time.monotonic(), sum(cpu_s(child.identity[0]) for child in children if child.identity is not None)
        if used_s - self._used_s >= _PROGRESS_S:
            self._used_s, self._until_s = used_s, now_s + START_TIMEOUT_S
        return now_s > min(self._until_s, self._last_s)


def start(home: Home, options: Options | None = None) -> ServerInfo:
    """Start the server processes that are not running, and wait until all of them answer.

    Raises: UsageError, ConflictError (it runs with other settings), OperationError, DiskFullError.
    """
    options = options or Options()
    _prepare(home)
    with hold(home, "up", _LOCKED_S):
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
            end(_living(home, BESIDE))  # restarted below with the new options
        mirrored = _is_mirrored(home)
        (home.root / "stopping").unlink(missing_ok=True)
        try:
            _bring_up(home, PROCESSES)
        except BaseException:  # with settings that do not work the next start would fail, too
            with contextlib.suppress(OSError, DiskFullError):
                write_atomic(home.settings_json, json.dumps(settings).encode())
            raise
        trouble, beside = _bring_up_mirror(home) if mirrored else ("", ())
        info = running(home)
    if info is None:
        raise OperationError(f"the server on {home.root} came up and went away again", f"see {home.logs}")
    return info._replace(started=(*dead, *beside), trouble=trouble)


def _refuse_copy(home: Home) -> None:
    """Reject start and stop in a copy of a home whose server runs: the agents of its jobs belong to that server.

    Raises: ConflictError.
    """
    with contextlib.suppress(OSError):  # if it is unknown, the locks decide
        original = copied_from(home)
        if original is not None:
            what = f"{home.root} is a copy of {original}, whose server runs"
            raise ConflictError(what, f"talk to it with TRAINMASTER_HOME={original}; to copy a home: tm backup, tm restore")


def _begin_anew(home: Home, all_dead: bool) -> None:
    """Move the old log aside. Raises: ConflictError while a server uses it, OperationError."""
    if not all_dead:
        raise ConflictError(f"a server runs on {home.root}: its log is in use", "stop it first: tm down")
    try:
        new_log.begin(home)
    except OSError as error:
        raise OperationError(f"the old log could not be set aside: {error}", f"check {home.root}") from error


def _is_mirrored(home: Home) -> bool:
    """Whether runs of any project are mirrored. Raises: UsageError for an invalid `server.toml`."""
    from trainmaster import configuration  # noqa: PLC0415  only a start needs it

    return bool(configuration.load(home).all_sinks)


def _bring_up_mirror(home: Home) -> tuple[str, tuple[str, ...]]:
    """Start the mirror unless it runs. Returns (why it could not be started, what was started)."""
    if alive(home, BESIDE[0]):
        return "", ()
    try:
        _bring_up(home, BESIDE[:1], first=False)
    except (TrainmasterError, OSError) as error:
        hint = getattr(error, "hint", "")
        return f"{error}" + (f" ({hint})" if hint else ""), ()
    return "", BESIDE[:1]


def revive(home: Home, which: str) -> bool:
    """Restart one process, unless it runs or the server was stopped. Returns whether it was necessary.

    Raises: OperationError, and other errors of the start.
    """
    with hold(home, "up", _LOCKED_S):
        if (home.root / "stopping").exists() or alive(home, which) or (which in BESIDE and not _is_mirrored(home)):
            return False
        _bring_up(home, [which], first=False)
    return True


def stop(home: Home) -> StopReport:
    """End the server's processes, including the spawner; jobs continue. Does nothing if none runs. Needs no disk space.

    Raises: OperationError if another start or stop does not finish; ConflictError in a copy of a home whose server runs.
    """
    if not home.root.is_dir():
        return StopReport()
    names = (*PROCESSES, *BESIDE)
    before = _living(home, names)
    with hold(home, "up", _LOCKED_S) as ended:  # a process that was stopped with this lock in its hands
        _refuse_copy(home)
        living = _living(home, names)
        with contextlib.suppress(OSError):  # a disk that accepts no writes: the lock alone prevents a revive
            home.server_json.unlink(missing_ok=True)  # first, because it frees space for the next file
            (home.root / "stopping").touch()  # from here on nothing is revived
        killed = {*end(living), *(which for which, (pid, _) in before.items() if pid == ended)}
        spawner = stop_spawner(home)
    stopped = (which for which in names if which in living or which in killed)
    return StopReport((*stopped, *spawner), tuple(which for which in names if which in killed))


def _living(home: Home, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    try:
        record = recorded(home)
    except OSError:
        record = {}  # unknown: the lock holders are found anyway
    found = {which: _identity(home, record, which) for which in names}
    return {which: identity for which, identity in found.items() if identity is not None}


def _bring_up(home: Home, wanted: Sequence[str], first: bool = True) -> None:
    """Start processes that are dead or die meanwhile, and wait for all. If one fails, end those that were started."""
    children: list[_Child] = []
    try:
        patience = _Patience()
        while not all(ready(home, which) for which in wanted):
            started = {child.which for child in children}
            dead = [which for which in wanted if which not in started and not alive(home, which)]
            children.extend(_spawn(home, which, first) for which in dead)
            _listen(children)
            if patience.ends(children):
                raise _silent(home, next(which for which in wanted if not ready(home, which)))
        while first and not _healthy(home):
            if patience.ends(children):
                raise OperationError(f"the server on {home.root} runs but does not answer", "try: tm down, then tm up")
            time.sleep(LOOK_S)
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
    """The error for a process that is not ready in time. A process that runs but is not in `server.json` holds its lock."""
    pid = holder(home.lock(which), inode(home.lock(which)))
    if pid is not None and not alive(home, which):
        message = f"{which} runs as process {pid} and is not in {home.server_json}, which was removed or put back from a copy"
        return OperationError(message, "jobs run on meanwhile: tm down, then tm up")
    load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    busy = f"; the machine may be too busy: load {load:.0f} on {processors} processors" if load > 2 * processors else ""
    return OperationError(f"{which} did not come up", f"see {home.logs}{busy}")


def _spawn(home: Home, which: str, first: bool) -> _Child:
    """Start one process detached: its own session, no parent, none of our streams."""
    log = home.logs / f"{which}.out"
    environment = dict(os.environ)
    if not first:
        environment.pop(ENV_FAILPOINT, None)  # it has fired already, and would only kill the process again
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
    """Read messages of processes that are being started, for a short time. Raises: the error with which one of them ended.

    A process that ended because another one holds its lock is dropped: the other one may still become ready.
    """
    poll = select.poll()  # `select.select` fails on descriptors over 1,024, which the api may have when it revives control
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
    """Wait for the identities of started processes, so that they can be ended. It is their first message."""
    for child in children:
        poll = select.poll()
        poll.register(child.pipe, select.POLLIN)
        while child.identity is None and poll.poll(_HEAR_S * 1000) and child.read():
            pass


def _failure(child: _Child) -> TrainmasterError:
    """The error of a process that ended during its start: its own message, else the last lines of its log."""
    if child.error:
        classes = {cls.code: cls for cls in TrainmasterError.__subclasses__()}
        return classes.get(child.error["code"], OperationError)(child.error["message"], child.error["hint"])
    words = _last_lines(child.log) or _last_lines(child.log.with_suffix(".log"))
    return OperationError(f"{child.which} ended while it started:\n{words}", f"see {child.log.parent}")


def _healthy(home: Home) -> bool:
    """Whether the api answers and reports that control is alive."""
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
    """Raises: UsageError if a failpoint is set and the server was not started for tests."""
    if os.environ.get(ENV_FAILPOINT) and not allowed:
        hint = "unset it, or start with --failpoints (tests only)"
        raise UsageError(f"{ENV_FAILPOINT} is set: it kills the server on purpose", hint)


def _prepare(home: Home) -> None:
    """Create the home, or explain why it cannot be used. Raises: OperationError, DiskFullError, UsageError."""
    hint = "choose another place with TRAINMASTER_HOME"
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = home.root.stat().st_uid
        if owner != os.geteuid():
            raise OperationError(f"{home.root} belongs to {account_name(owner)}, not to {account_name(os.geteuid())}", hint)
        home.logs.mkdir(mode=0o700, exist_ok=True)
        home.lock("up").touch(mode=0o600)
        for path, mode in ((home.root, 0o700), (home.lock("up"), 0o600)):  # created by hand, or by an older version
            if path.stat().st_mode & 0o077:
                path.chmod(mode)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{home.root} is not a directory: {error.filename} is a file", hint) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"no space left for {home.root}", "free some space, or " + hint) from error
        raise OperationError(f"{home.root} cannot be written: {error.strerror}", hint) from error


def _identity(home: Home, record: dict[str, Any], which: str) -> tuple[int, int] | None:
    """(pid, start ticks) of a living process: from `server.json`, else from the holder of its lock."""
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
