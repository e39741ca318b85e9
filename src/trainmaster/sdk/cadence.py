"""Decides for the adapters, after a step, whether to save and whether to stop.

A job is stopped by a flag (`should_stop`) and by SIGTERM, which ends a Python program before it can save. So an adapter
calls `heed_term`. The SIGTERM that comes with the flag is then ignored, and the adapter saves and ends. Any other SIGTERM
still kills the program.
"""

import os
import signal
import threading
from typing import Any, NamedTuple, Optional

from trainmaster.sdk.channel import should_checkpoint, should_stop
from trainmaster.wire.names import ENV_SDK


class Order(NamedTuple):
    """What to do after a step."""

    save: bool
    stop: bool


class Cadence:
    """`every`: save every so many steps; None: only on request and before a stop. Raises: ValueError below 1."""

    def __init__(self, every: Optional[int] = None) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every={every}: a checkpoint is saved every 1 or more steps, or None: only when asked for")
        self._every = every
        self._saved: Optional[int] = None

    def ask(self, step: int) -> Order:
        """What to do after `step`. A step is saved once, even if several requests arrive."""
        stop, asked = should_stop(), should_checkpoint()
        due = self._every is not None and step % self._every == 0
        save = (due or asked or stop) and step != self._saved
        if save:
            self._saved = step
        return Order(save, stop)


class _Term:
    """Ignores the SIGTERM that comes with the stop flag, once per process. Forked data loaders have their own count."""

    def __init__(self) -> None:
        self._had: Optional[int] = None  # pid of the process that has ignored its one

    def __call__(self, number: int, frame: Any) -> None:
        if should_stop() and self._had != os.getpid():
            self._had = os.getpid()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def heed_term(instead: bool = False) -> None:
    """Let `should_stop` decide when to end: only in a job, in the main thread, and if the program has no SIGTERM handler.

    `instead`: also replace the handler of a framework, which would end the training before it is saved.
    """
    if not os.environ.get(ENV_SDK) or threading.current_thread() is not threading.main_thread():
        return
    if instead or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _Term())
