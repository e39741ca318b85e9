"""The terminal of the person at `tm exec -t` and `tm attach`: raw while a command runs, and restored whatever happens."""

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

_LINE_ENDS = b"\r\n"


class Terminal:
    """Standard input and output, if both are a terminal."""

    @property
    def usable(self) -> bool:
        """Whether both are."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def size(self) -> dict[str, Any]:
        """Its size and kind, as the server takes them."""
        columns, rows = os.get_terminal_size(1)
        return {"rows": rows, "columns": columns, "term": os.environ.get("TERM") or "dumb"}

    @contextmanager
    def raw(self, resized: Callable[[], None]) -> Iterator[None]:
        """Every key reaches the command. `resized` is called on a thread of its own whenever the size has changed.

        SIGTERM, and SIGHUP of a terminal that was closed, raise KeyboardInterrupt, which ends the command.
        """
        before, over = termios.tcgetattr(0), threading.Event()
        changed: SimpleQueue[None] = SimpleQueue()  # unlike an event, it may be used in a handler that interrupts itself

        def watch() -> None:
            while True:
                changed.get()
                while not changed.empty():
                    changed.get()
                if over.is_set():
                    return
                resized()

        def leave(*_: object) -> None:
            raise KeyboardInterrupt

        threading.Thread(target=watch, daemon=True).start()
        handlers = {signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: changed.put(None))}
        try:
            handlers |= {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
            tty.setraw(0, termios.TCSADRAIN)  # what was typed before is not lost
            yield
        finally:
            over.set()
            changed.put(None)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(0, termios.TCSADRAIN, before)


class Escape:
    """Finds `~.` at the beginning of a line, as ssh does: it leaves a terminal that does not answer. `~~` is one `~`."""

    def __init__(self) -> None:
        self._at_start, self._held = True, False
        self.left = False

    def take(self, data: bytes) -> bytes:
        """What to forward of `data`; sets `left` when the person leaves."""
        forward = bytearray()
        for byte in data:
            if self._held:
                self._held = False
                if byte == ord("."):
                    self.left = True
                    return bytes(forward)
                forward += b"~" if byte == ord("~") else bytes((ord("~"), byte))
                self._at_start = byte in _LINE_ENDS
            elif self._at_start and byte == ord("~"):
                self._held = True
            else:
                forward.append(byte)
                self._at_start = byte in _LINE_ENDS
        return bytes(forward)
