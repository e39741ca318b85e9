"""Bounded worker threads for work that may wait for a disk or another process, so that control's tick never waits.

Each kind of work has its own threads: a delete that takes minutes delays no stop and no launch.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Lane(StrEnum):
    """Kinds of work."""

    LOOK = "look"
    STOP = "stop"
    LAUNCH = "launch"
    DELETE = "delete"
    DISK = "disk"  # short checks of the home's disk


THREADS = {Lane.LOOK: 1, Lane.STOP: 4, Lane.LAUNCH: 4, Lane.DELETE: 2, Lane.DISK: 1}  # maximum for each kind


class Workers(Protocol):
    """Law: work of one lane begins in the order of submission."""

    def submit(self, lane: Lane, work: Callable[[], T]) -> "Future[T]":
        """Schedule `work`. Its result or exception becomes the future's."""
        ...


class Inline:
    """Runs work immediately in the caller's thread: deterministic, for tests and simulations."""

    def submit(self, lane: Lane, work: Callable[[], T]) -> "Future[T]":
        """Run `work`; the returned future is done. Exceptions of `work` pass through."""
        done: Future[T] = Future()
        done.set_result(work())
        return done


class Threads:
    """Daemon threads, started on demand: work that hangs does not keep the process from exiting."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self._lanes = {lane: _Pool(lane.value, most) for lane, most in THREADS.items()}

    def submit(self, lane: Lane, work: Callable[[], T]) -> "Future[T]":
        """`wake` is called when the work is done, from the worker's thread."""
        future: Future[T] = Future()
        self._lanes[lane].put(future, work)
        future.add_done_callback(lambda _: self._wake())
        return future


class _Pool:
    """The threads of one lane. `concurrent.futures` has no daemon threads."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def put(self, future: "Future[Any]", work: Callable[[], Any]) -> None:
        self._work.put((future, work))
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()

    def _next(self) -> "tuple[Future[Any], Callable[[], Any]]":
        try:
            return self._work.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._work.get()

    def _run(self) -> None:
        while True:
            future, work = self._next()
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - re-raised where the result is requested
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, work  # release their references before waiting for more work
