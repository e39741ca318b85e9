"""`tm up --foreground`: stays in the foreground with the server, for systemd and containers.

It restarts server processes that die. SIGTERM or SIGINT stops them, but no jobs: agents are not children of the server.
It also ends when the server is stopped by `tm down`.
"""

import contextlib
import os
import signal
import socket
import sys
from queue import Empty, SimpleQueue
from types import FrameType

from trainmaster import daemons, live_processes
from trainmaster.cli.render.output import Output
from trainmaster.errors import OperationError, TrainmasterError
from trainmaster.home import Home

Signals = SimpleQueue[int]
_LOOK_S = 1.0
_STUBBORN = 30  # checks in a row at which a process could not be restarted


def listen() -> Signals:
    """SIGTERM and SIGINT from now on. Call it before the server is started, so that none is missed."""
    stopping: Signals = SimpleQueue()  # an event's lock may be held by what a handler interrupts

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


def stay(home: Home, out: Output, stopping: Signals) -> None:
    """Return once the server was stopped. Raises: OperationError if a process cannot be restarted."""
    sys.stdout.flush()  # it may be a pipe or the journal
    _tell_systemd("READY=1")
    failures = 0
    while not _told(stopping):
        _reap()
        if (home.root / "stopping").exists() or not home.root.is_dir():
            out.note("the server was stopped")
            return
        failures = failures + 1 if not _revived(home, out) else 0
        if failures >= _STUBBORN:
            raise OperationError(f"the server could not be restarted in {failures} tries", f"see {home.logs}")
    _tell_systemd("STOPPING=1")
    report = daemons.stop(home)
    out.note(f"stopped: {', '.join(report.stopped) or 'nothing was running'}; running jobs continue")


def _told(stopping: Signals) -> bool:
    """Whether a signal came, or comes within the time between two looks."""
    with contextlib.suppress(Empty):
        stopping.get(timeout=_LOOK_S)
        return True
    return False


def _revived(home: Home, out: Output) -> bool:
    """Restart dead processes; returns whether all are running."""
    for which in live_processes.PROCESSES:
        try:
            if not live_processes.alive(home, which) and daemons.revive(home, which):
                out.note(f"{which} had died and was restarted")
        except (TrainmasterError, OSError) as error:
            out.note(f"{which} cannot be restarted: {error}")
            return False
    return True


def _reap() -> None:
    """Reap orphaned processes: in a container this process is process 1, which adopts them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _tell_systemd(word: str) -> None:
    """`sd_notify`, if systemd started this process with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect("\0" + address[1:] if address.startswith("@") else address)
        notify.sendall(word.encode())
