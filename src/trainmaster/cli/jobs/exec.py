"""`tm exec` and `tm attach`: run a command beside a live job's ranks, in their environment and work directory."""

import _thread
import base64
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import click

from trainmaster.cli.jobs.terminal import Escape, Terminal
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import Client, Row
from trainmaster.errors import INTERRUPTED_EXIT, OperationError, TrainmasterError, UsageError

_NOT_STARTED_EXIT = 127  # as in shells
_BLOCK_BYTES = 65536
_STOP_S = 10.0  # after Ctrl-C, how long to wait for the last output
_SHELL = 'command -v "$SHELL" >/dev/null 2>&1 && exec "$SHELL"; command -v bash >/dev/null && exec bash; exec sh'


@click.command("exec")
@click.argument("job", type=JOB)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--rank", type=click.IntRange(0), help="Beside this rank, in its environment; default: rank 0.")
@click.option("--role", metavar="NAME", help="Beside this role.")
@click.option("--node", type=click.IntRange(0), help="On this node of the gang.")
@click.option("-i", "--stdin", "typing", is_flag=True, help="Forward standard input; otherwise the command's input is empty.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal, of the size of yours; includes --stdin.")
@click.option("--stacks", is_flag=True, help="Show the Python stacks of the ranks (py-spy) instead of running a command.")
@remote
def execute(session: Session, job: str, command: tuple[str, ...], typing: bool, stacks: bool, **where: Any) -> int:
    """Run a command beside a live job, in its allocation, environment and work directory. It ends with the attempt.

    The exit code is the command's own, or 128+n after signal n. Editors and prompts need a terminal: -t, or `tm attach`.
    """
    tty = where.pop("tty")
    if bool(command) == stacks:
        raise UsageError("give a command, or ask for --stacks", "tm exec JOB -- nvidia-smi   or   tm exec JOB --stacks")
    place = {name: value for name, value in where.items() if value is not None}
    if tty and command:
        return _in_terminal(session, job, {"command": list(command), **place})
    client = session.client(start=True)
    if stacks and not place:
        nodes = int(client.job(job)["spec"]["resources"]["nodes"])
        codes = [_run(session, client, job, {"stacks": True, "node": node}) for node in range(nodes)]
        return max(codes)
    what = {"stacks": True} if stacks else {"command": list(command), "stdin": typing}
    return _run(session, client, job, {**what, **place})


@click.command()
@click.argument("job", type=JOB)
@click.option("--rank", type=click.IntRange(0), help="Beside this rank, in its environment; default: rank 0.")
@click.option("--role", metavar="NAME", help="Beside this role.")
@click.option("--node", type=click.IntRange(0), help="On this node of the gang.")
@remote
def attach(session: Session, job: str, **where: Any) -> int:
    """Open a shell beside a live job, in its environment and work directory.

    Ctrl-C goes to the shell. `exit` ends it, and so does `~.` at the beginning of a line. The job is not affected.
    """
    place = {name: value for name, value in where.items() if value is not None}
    return _in_terminal(session, job, {"command": ["sh", "-c", _SHELL], **place})


def _in_terminal(session: Session, job: str, what: Row) -> int:
    """Run a command in a terminal of its own, shown in this one. Raises: UsageError."""
    terminal = Terminal()
    if session.out.json or not terminal.usable:
        raise UsageError("standard input and output are not both a terminal", "without one: tm exec -i JOB -- COMMAND")
    client = session.client(start=True)
    with _HeldInterrupt() as held:
        begun = client.exec_begin(job, {**what, "terminal": terminal.size()})
        with terminal.raw(lambda: _resize(session, begun, terminal)):
            over = _follow(session, client, begun, Escape(), held)
    return _result(session, begun, over)


def _resize(session: Session, begun: Row, terminal: Terminal) -> None:
    """The size has changed. Called on a thread of its own."""
    with suppress(TrainmasterError), Client(session.server, start=False) as client:
        client.exec_resize(begun["job"], begun["id"], terminal.size())


def _run(session: Session, client: Client, job: str, what: Row) -> int:
    """Run one command to its end; returns its exit code."""
    with _HeldInterrupt() as held:
        begun = client.exec_begin(job, what)
        over = _follow(session, client, begun, _AsTyped() if what.get("stdin") else None, held)
    return _result(session, begun, over)


class _HeldInterrupt:
    """Holds back Ctrl-C from the request for a command until its id is known: without it, nobody could end the command.

    A second Ctrl-C is not held back.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> "_HeldInterrupt":
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def release(self) -> None:
        """Hold nothing back from now on. Idempotent. Raises: KeyboardInterrupt if Ctrl-C was pressed."""
        self._restore()
        if self._pressed:
            self._pressed = False
            raise KeyboardInterrupt

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _press(self, *_: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


def _follow(
    session: Session, client: Client, begun: Row, typed: "_AsTyped | Escape | None", held: _HeldInterrupt
) -> Row | None:
    """Show the output of a command to its end, and forward what is typed. Returns how it ended; None after Ctrl-C."""
    if typed is not None:
        threading.Thread(target=_type, args=(session, begun, typed), daemon=True).start()
    cursor, interrupted_s = 0, None
    while True:
        try:
            held.release()
            page = client.exec_output(begun["job"], begun["id"], cursor)
            cursor = page["cursor"]
            for chunk in page["chunks"]:
                _show(session, chunk)
            over: Row | None = page["over"]
            if over is not None:
                return over if interrupted_s is None else None
            if interrupted_s is not None and time.monotonic() - interrupted_s > _STOP_S:
                return None
        except KeyboardInterrupt:
            if interrupted_s is not None:
                raise
            interrupted_s = time.monotonic()
            client.close()  # drops any response still on its way
            client.exec_stop(begun["job"], begun["id"])


class _AsTyped:
    """Input that is forwarded as it is."""

    left = False

    def take(self, data: bytes) -> bytes:
        """What to forward of `data`."""
        return data


def _type(session: Session, begun: Row, typed: _AsTyped | Escape) -> None:
    """Forward standard input, on its own thread and connection. The command may end first."""
    try:
        with Client(session.server, start=False) as client:
            ended = False
            while not ended:
                data = os.read(0, _BLOCK_BYTES)
                ended = not data
                text = base64.b64encode(typed.take(data)).decode()
                if typed.left:
                    _thread.interrupt_main()  # as Ctrl-C does where it is not forwarded
                    return
                while not client.exec_input(begun["job"], begun["id"], text, ended):
                    continue
    except (TrainmasterError, OSError):
        return  # the thread that reads the output reports the error


def _show(session: Session, chunk: Row) -> None:
    name, data = ("stdout", "stderr")[chunk["stream"] - 1], base64.b64decode(chunk["data"])
    if session.out.json:
        session.out.stream({"stream": name, "text": data.decode(errors="backslashreplace")})
        return
    stream = sys.stdout if name == "stdout" else sys.stderr
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def _result(session: Session, begun: Row, over: Row | None) -> int:
    """Report how the command ended; returns the exit code. Raises: OperationError."""
    if over is None:
        return INTERRUPTED_EXIT
    if over["error"] is not None:
        if session.out.json:
            raise OperationError(over["error"])
        session.out.note(f"error: {over['error']}")
        return _NOT_STARTED_EXIT
    code = over["exit_code"] if over["signal"] is None else 128 + int(over["signal"])
    if over["with_attempt"]:
        session.out.note(f"attempt {begun['attempt']} of {begun['job']} ended, and the command with it")
    if session.out.json:
        session.out.stream({**begun, **{name: over[name] for name in ("exit_code", "signal", "with_attempt")}})
    if code is None:
        raise OperationError("the command's result is unknown: its agent is gone", f"tm show {begun['job']}")
    return int(code)
