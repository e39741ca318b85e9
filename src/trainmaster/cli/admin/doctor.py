"""`tm doctor`: checks the installation and the server. Each check prints one line, and a hint if it fails."""

import email.utils
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from trainmaster import __version__, configuration, live_processes, troubles
from trainmaster.cli.inspect import server_troubles
from trainmaster.cli.render import human
from trainmaster.cli.session import Session, remote
from trainmaster.client.servers.embedded import AbsentError
from trainmaster.errors import TrainmasterError
from trainmaster.home import Home

_DISK_MIN_BYTES = 2 * 1024**3
_PYTHON = (3, 11)
_CLOCK_S = 5.0
_STARTS_S = 120.0  # an MLflow server that we run; half a minute on an idle machine


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check. `ok` None: information only."""

    name: str
    ok: bool | None
    message: str
    hint: str = ""


@click.command()
@click.option("--replay", is_flag=True, help="Replay the whole event log and compare the result with the recorded state.")
@remote
@click.pass_context
def doctor(context: click.Context, session: Session, replay: bool) -> None:
    """Check server, disk, permissions, clock, GPUs and programs. Exit code 1 if a check fails. Starts nothing."""
    home, out = Home.default(), session.out
    checks: list[Callable[[], Check]] = [
        lambda: _server(session),
        lambda: _troubles(home),
        lambda: _home(home),
        lambda: _disk(home),
        lambda: _mirror(home),
        _clock,
        _python,
        _git,
        _gpus,
        lambda: _cgroups(home, 0),
        lambda: _cgroups(home, 1),
    ]
    if replay:
        checks.append(lambda: _replay(home))
    if home.events_db.exists():
        try:
            checks[4:4] = [partial(Check, *one) for one in _files(home)]
        except OSError as error:
            checks[4:4] = [partial(_unread, error)]
    found = []
    for check in checks:
        found.append(_made(check))
        if not out.json:
            mark = {True: "ok", None: "--", False: "WRONG"}[found[-1].ok]
            out.data(f"{mark:<6} {found[-1].name:<10} {found[-1].message}")
            if found[-1].hint:
                out.data(f"{'':<17} {found[-1].hint}")
    if out.json:
        out.value([asdict(one) for one in found])
    context.exit(1 if any(one.ok is False for one in found) else 0)


def _made(check: Callable[[], Check]) -> Check:
    """Run a check. If a file cannot be read, that is its result; other checks still run."""
    try:
        return check()
    except OSError as error:
        return _unread(error)


def _unread(error: OSError) -> Check:
    return Check("files", False, str(error), "check that file, its permissions and its disk")


def _server(session: Session) -> Check:
    try:
        client = session.client()
        told = client.healthz()
    except TrainmasterError as error:
        none = isinstance(error, AbsentError)
        return Check("server", None if none else False, error.message, error.hint)
    if told["version"] != __version__:
        told_versions = f"{client.url} has version {told['version']}, this is {__version__}"
        return Check("server", False, told_versions, "tm down, then tm up")
    if not told["control"]:
        return Check("server", False, f"{client.url} answers, but its control process does not", "restart it: tm up")
    try:
        client.jobs(limit=1)
    except TrainmasterError as error:
        return Check("server", False, error.message, error.hint)
    return Check("server", True, f"{client.url}, version {told['version']}, {human.plural(told['nodes'], 'node')}")


def _troubles(home: Home) -> Check:
    """Problems that the server's processes report."""
    found = [server_troubles.one(one._asdict(), time.time()) for one in troubles.everywhere(home)]
    if not found:
        return Check("troubles", True, "the server's processes report none")
    return Check("troubles", False, "; ".join(found), f"for details see {home.logs}")


def _home(home: Home) -> Check:
    try:
        status = home.root.stat()
    except OSError:
        return Check("home", None, f"{home.root} does not exist yet; the first start creates it")
    if status.st_uid != os.geteuid():
        return Check("home", False, f"{home.root} belongs to another user", "choose another place with TRAINMASTER_HOME")
    readable = [path for path in (home.token_file, home.secret_file) if path.exists() and path.stat().st_mode & 0o077]
    if readable:
        return Check("home", False, f"{readable[0]} is readable by others", f"chmod 600 {readable[0]}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        return Check("home", False, f"{home.root} is accessible to others", f"chmod 700 {home.root}")
    return Check("home", True, str(home.root))


def _files(home: Home) -> list[tuple[str, bool | None, str, str]]:
    """Check each database completely."""
    found: list[tuple[str, bool | None, str, str]] = import_module("trainmaster.compose").files_report(home)
    return found


def _disk(home: Home) -> Check:
    place = next(path for path in (home.root, *home.root.parents) if path.exists())
    usage = shutil.disk_usage(place)
    told = f"{human.size(usage.free)} of {human.size(usage.total)} free at {place}"
    if usage.free < _DISK_MIN_BYTES:
        return Check("disk", False, told, "free some space: on a full disk, checkpoints and new jobs are rejected")
    return Check("disk", True, told)


def _mirror(home: Home) -> Check:
    """The state of mirroring to trackers."""
    told = home.read_json(home.mirror_json) or {}
    try:
        configured = configuration.load(home)
    except TrainmasterError as error:
        return Check("mirror", False, error.message, error.hint)
    wanted = configured.all_sinks
    if not wanted:
        return Check("mirror", None, "runs are not mirrored; to mirror them into a local MLflow server: tm up --mlflow")
    if not live_processes.alive(home, "mirror"):
        running = live_processes.running(home) is not None
        hint = f"tm up shows the reason; see {home.logs / 'mirror.log'}" if running else "start it: tm up"
        return Check("mirror", False if running else None, f"{', '.join(wanted)}: no mirror runs", hint)
    ours = "mlflow" if configured.tracking.mlflow is None else ""
    lines = [tracker_line(name, told.get("trackers", {}).get(name, {}), name == ours) for name in wanted]
    troubled = any(wrong for _, wrong in lines)
    hint = "jobs keep running and nothing is lost: it retries, and catches up when the tracker answers" if troubled else ""
    return Check("mirror", not troubled, "; ".join(line for line, _ in lines), hint)


def tracker_line(name: str, state: Mapping[str, Any], ours: bool = False) -> tuple[str, bool]:
    """The state of one tracker (its part of `mirror.json`), and whether there is a problem. `ours`: a server that we start."""
    points, trouble, runs = state.get("points"), state.get("trouble"), state.get("runs") or {}
    if ours and trouble and time.time() - state["since_s"] < _STARTS_S:
        points, trouble = None, ""
    late = [f"{points} points ({human.duration(state['seconds'])})"] if points else []
    late += [human.plural(state["behind"], "run")] if state.get("behind") else []
    behind = f"{' and '.join(late)} behind" if late else "up to date"
    line = f"{name} {'is starting' if points is None else behind}"
    if runs:
        job, why = next(iter(runs.items()))
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        line += f" except for {job}{more}, where it fails: {why}"
    if state.get("refused"):
        line += f", refuses {human.plural(state['refused'], 'run')} (tm show names the reason)"
    if trouble:
        line += f", does not answer: {trouble}"
    return line, bool(trouble or runs)


def _clock() -> Check:
    now_s = time.time()
    try:
        built_s = Path(__file__).stat().st_mtime
    except OSError:
        built_s = 0.0
    if now_s < built_s - _CLOCK_S:
        told = f"it is set before this program's installation: {email.utils.formatdate(now_s)}"
        return Check("clock", False, told, "set the clock")
    return Check("clock", True, email.utils.formatdate(now_s))


def _python() -> Check:
    told = f"{platform.python_version()} at {sys.executable}"
    program = shutil.which("python") or shutil.which("python3")
    if sys.version_info < _PYTHON:
        return Check("python", False, told, "Trainmaster itself needs Python 3.11")
    if program is None:
        return Check("python", False, f"{told}, but no `python` on PATH for programs", "put one on PATH, or use --python PATH")
    return Check("python", True, f"{told}; programs run with {program}")


def _git() -> Check:
    program = shutil.which("git")
    if program is None:
        return Check("git", None, "not installed: commits are not recorded, and .gitignore is ignored")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return Check("git", True, told.stdout.strip()) if told.returncode == 0 else Check("git", False, f"{program} does not run")


def _gpus() -> Check:
    try:
        nvml = import_module("pynvml")  # imported here: no other command needs it
        nvml.nvmlInit()
    except ImportError:
        return Check("gpus", None, "nvidia-ml-py is not installed: GPUs are not detected", "pip install nvidia-ml-py")
    except nvml.NVMLError as error:
        return Check("gpus", None, f"none detected ({error}); to declare stand-ins: tm up --gpus-per-node N")
    names = [nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]
    driver = nvml.nvmlSystemGetDriverVersion()
    return Check("gpus", True, f"{len(names)}: {', '.join(sorted(set(names)))}, driver {driver}")


def _cgroups(home: Home, which: int) -> Check:
    """What the kernel allows the local engine: to kill all processes of an attempt (0), to enforce memory limits (1)."""
    cgroups = import_module("trainmaster.engines.local.cgroups").Cgroups(home.root)  # imported here: no other command needs it
    said = str(cgroups.words()[which])
    if which == 0:
        hint = "" if cgroups.contains else "run the server as a service with Delegate=yes (systemd), or as root"
        return Check("processes", True if cgroups.contains else None, said, hint)
    return Check("memory", True if cgroups.limits else None, said)


def _replay(home: Home) -> Check:
    if not home.events_db.exists():
        return Check("replay", None, "no event log yet")
    compose = import_module("trainmaster.compose")  # imported here: it imports every adapter
    differences: list[str] = compose.replay_report(home)
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        return Check("replay", False, differences[0] + more, "keep a copy of the home and report it")
    return Check("replay", True, "replaying the event log gives the recorded state")
