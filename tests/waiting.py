"""Waiting without sleeping blindly: poll a question until it is answered or a deadline passes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def deadline(question: Callable[[], T | None], what: str, timeout_s: float = 10.0, every_s: float = 0.02) -> T:
    """The first answer that is neither None nor False. Raises: AssertionError naming `what` when none came in time."""
    end_s = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() >= end_s:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; the last answer was {answer!r}")
        time.sleep(every_s)


@contextmanager
def meanwhile(after_s: float, do: Callable[[], object]) -> Iterator[None]:
    """`do` is called on a thread `after_s` seconds after the block begins, and has returned when the block ends."""
    timer = threading.Timer(after_s, do)
    timer.start()
    try:
        yield
    finally:
        timer.join()
