"""`tm up --foreground`: stays with the server it has started, for systemd and containers.

Its processes are looked after while it stays: whatever of them is gone comes back. TERM or INT ends them, and no job:
agents are nobody's children. When somebody else stops the server (`tm down`) it ends too.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from types import FrameType

from trainmaster import daemons, presence
from trainmaster.cli.render.output import Output
from trainmaster.errors import OperationError, TrainmasterError
from trainmaster.home import Home

_LOOK_S = 1.0
_STUBBORN = 30  # looks in a row at which a process did not come back


def listen() -> threading.Event:
    """An event that TERM and INT set from here on: call it before the server is started, so that none is missed."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping


def stay(home: Home, out: Output, stopping: threading.Event) -> None:
    """Return once the server was stopped. Raises: OperationError when a process of it does not come back."""
    sys.stdout.flush()  # where it is a pipe or the journal
    _tell_systemd("READY=1")
    failures = 0
    while not stopping.wait(_LOOK_S):
        _reap()
        if (home.root / "stopping").exists() or not home.root.is_dir():
            out.note("the server was stopped")
            return
        failures = failures + 1 if not _revived(home, out) else 0
        if failures >= _STUBBORN:
            raise OperationError(f"the server does not come back after {failures} tries", f"see {home.logs}")
    _tell_systemd("STOPPING=1")
    report = daemons.stop(home)
    out.note(f"stopped: {', '.join(report.stopped) or 'nothing ran any more'}; jobs that run go on")


def _revived(home: Home, out: Output) -> bool:
    """Bring back what is gone; whether all of it is there."""
    for which in presence.PROCESSES:
        try:
            if not presence.alive(home, which) and daemons.revive(home, which):
                out.note(f"{which} was gone and is back")
        except (TrainmasterError, OSError) as error:
            out.note(f"{which} does not come back: {error}")
            return False
    return True


def _reap() -> None:
    """In a container we are process 1, to which whatever lost its parent falls: let what has ended go."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _tell_systemd(word: str) -> None:
    """`sd_notify`, where systemd has started us with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect("\0" + address[1:] if address.startswith("@") else address)
        notify.sendall(word.encode())
