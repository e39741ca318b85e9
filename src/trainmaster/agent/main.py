"""One agent from start to end: `run`. It keeps no global state, so a warm process may fork and call it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import redirect_stderr, suppress

from trainmaster import agent
from trainmaster.agent.files.fast_json import loads, read_json
from trainmaster.agent.files.own_words import OwnWords
from trainmaster.agent.launch.start import Failure, Startup
from trainmaster.agent.processes import libc
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise import exit_record
from trainmaster.wire import names
from trainmaster.wire.processes import own_identity

_NOT_OF_A_RUN = {"trainmaster.agent.__main__", "trainmaster.agent.pack", "trainmaster.agent.launch.function"}


def preload() -> None:
    """Import everything that `run` may import, for a process that forks agents: an upgrade may replace the files meanwhile."""
    from importlib import import_module  # noqa: PLC0415 - an agent itself does not need it
    from pkgutil import walk_packages  # noqa: PLC0415 - likewise

    for module in walk_packages(agent.__path__, f"{agent.__name__}."):
        if module.name not in _NOT_OF_A_RUN:
            import_module(module.name)
    loads("{}")


def run(directory: str) -> int:
    """Run the agent of an attempt's directory to its end. Returns 0, unless the launch file cannot be read.

    Does nothing if another agent holds the directory, if an earlier agent is gone, or if the end is already recorded. Call it
    only in the main thread of a process without children: it takes over signals and waits for every child.
    """
    directory = os.path.abspath(directory)
    lock = os.open(os.path.join(directory, names.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.exists(os.path.join(directory, names.EXIT)) or not _first(directory):
            return 0
        with redirect_stderr(OwnWords(sys.stderr)):
            _live(directory)
        return 0
    except BlockingIOError:
        return 0
    finally:
        os.close(lock)


def _live(directory: str) -> None:
    with suppress(PermissionError):  # the parent may have done it already
        os.setsid()
    wake = Wake()
    wake.install()
    launch = read_json(os.path.join(directory, names.LAUNCH))
    _identify(directory, launch["key"], launch.get("home", ""))
    libc.adopt_orphans()
    start = Startup(directory, launch, wake)
    try:
        exit_record.allocate(directory)
    except OSError as error:  # start nothing whose end could not be recorded
        words = f"could not reserve the record of its end in {directory}: {error}; free some disk space there"
        start.failure = Failure(words, of_machine=True)
    else:
        start.make()
    from trainmaster.agent.supervise.loop import Attempt  # noqa: PLC0415 - slow to import, and the ranks run by now

    Attempt(start).run()
    start.prepared.release()
    from trainmaster.wire import cgroups  # noqa: PLC0415 - as above

    for group in launch.get("contained", ()):  # empty by now; if the agent is killed, the engine removes them
        cgroups.remove(group)


def _first(directory: str) -> bool:
    """Whether no agent ran here before: ranks are never started twice for one directory."""
    try:
        return bool(read_json(os.path.join(directory, names.AGENT))["pid"] == os.getpid())
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return False


def _identify(directory: str, key: str, home: str) -> None:
    """Record atomically which process holds the lock."""
    own = own_identity()
    path = os.path.join(directory, names.AGENT)
    descriptor = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fields = f'"home": "{home}", "pid": {own["pid"]}, "start_ticks": {own["start_ticks"]}, "boot_id": "{own["boot_id"]}"'
        os.write(descriptor, f'{{"key": "{key}", {fields}, "started_monotonic_s": {time.monotonic()}}}\n'.encode())
    finally:
        os.close(descriptor)
    os.rename(f"{path}.part", path)
