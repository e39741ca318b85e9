"""What every adapter asks after a step: is it time to save, is it time to end?

A job is stopped by a word (`should_stop`) and by TERM, which ends a Python program before it can save. So an adapter asks
`heed_term`: the TERM that comes with the word is then left to the adapter, which saves and ends; any other still kills.
"""

import os
import signal
import threading
from typing import Any, NamedTuple, Optional

from trainmaster.sdk.channel import should_checkpoint, should_stop
from trainmaster.wire.names import ENV_SDK


class Order(NamedTuple):
    """What is to be done after a step."""

    save: bool
    stop: bool


class Cadence:
    """`every`: save after each so many steps; None: only when asked, and before a stop. Raises: ValueError below 1."""

    def __init__(self, every: Optional[int] = None) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every={every}: a checkpoint is saved every 1 or more steps, or None: only when asked for")
        self._every = every
        self._saved: Optional[int] = None

    def ask(self, step: int) -> Order:
        """What is to be done after `step`; a step is saved once, however often it is asked for."""
        stop, asked = should_stop(), should_checkpoint()
        due = self._every is not None and step % self._every == 0
        save = (due or asked or stop) and step != self._saved
        if save:
            self._saved = step
        return Order(save, stop)


class _Term:
    """The TERM that comes with the word to stop is swallowed once in each process; loaders forked before are others."""

    def __init__(self) -> None:
        self._had: Optional[int] = None  # the process that has had its one

    def __call__(self, number: int, frame: Any) -> None:
        if should_stop() and self._had != os.getpid():
            self._had = os.getpid()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def heed_term(instead: bool = False) -> None:
    """Let `should_stop` say when to end, in a job, in the main thread, unless the program handles TERM itself.

    `instead`: also where a framework has put a handler of its own, which would end the training before it is saved.
    """
    if not os.environ.get(ENV_SDK) or threading.current_thread() is not threading.main_thread():
        return
    if instead or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _Term())
