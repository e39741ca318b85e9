"""The main loop of the mirror process: each tracker has its own thread, so that one that hangs delays no other.

A tracker that does not answer is retried with growing intervals. An unexpected error in a thread ends the process: the api
restarts it, and it continues from its cursors.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from trainmaster.errors import TrainmasterError
from trainmaster.home import write_atomic
from trainmaster.tracking.follower import Follower

POLL_S = 0.25
_RETRY_S, _RETRY_MAX_S = 1.0, 30.0
_STATUS_S = 1.0

_log = logging.getLogger("trainmaster.mirror")


class Mirror:
    """Followers by tracker name. Each is created on its own thread, since its imports may take seconds."""

    def __init__(self, followers: Mapping[str, Callable[[], Follower]], status: Path) -> None:
        self._makers = followers
        self._status = status
        self._over = threading.Event()  # `run` returns
        self._ended: SimpleQueue[None] = SimpleQueue()  # a stop was requested, or a thread has ended
        self._stopping = False
        self._made: dict[str, Follower] = {}
        self._troubles: dict[str, tuple[float, str]] = {}  # start time, and message

    def stop(self) -> None:
        """Make `run` return. May be called from a signal handler."""
        self._stopping = True
        self._ended.put(None)  # an event's lock may be held by what the handler interrupts

    def run(self) -> int:
        """Run until stopped. Interrupted work is repeated after the next start."""
        for name in self._makers:
            threading.Thread(target=self._keep_following, args=(name,), name=f"mirror-{name}", daemon=True).start()
        told: dict[str, Any] | None = None
        while not self._has_ended():
            now = {name: self._state_of(name) for name in self._makers}
            if now != told:
                told = now
                with suppress(OSError):  # the status file is not essential
                    write_atomic(self._status, json.dumps({"at_s": time.time(), "trackers": now}).encode())
        self._over.set()
        return 0 if self._stopping else 1

    def _has_ended(self) -> bool:
        """Waits for the time between two looks at the state."""
        with suppress(Empty):
            self._ended.get(timeout=_STATUS_S)
            return True
        return False

    def _keep_following(self, name: str) -> None:
        try:
            self._follow(name)
        finally:
            self._ended.put(None)

    def _follow(self, name: str) -> None:
        retry_s = _RETRY_S
        while not self._over.is_set():
            try:
                follower = self._made.get(name)
                if follower is None:
                    follower = self._made[name] = self._makers[name]()
                more = follower.step()
            except TrainmasterError as error:
                if name not in self._troubles:
                    _log.warning("%s: %s", name, error)
                self._troubles[name] = (self._troubles.get(name, (time.time(), ""))[0], error.message)
                self._over.wait(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
                continue
            retry_s = _RETRY_S
            if self._troubles.pop(name, None) is not None:
                _log.warning("%s answers again", name)
            if not more:
                self._over.wait(POLL_S)

    def _state_of(self, name: str) -> dict[str, Any]:
        follower = self._made.get(name)
        since_s, trouble = self._troubles.get(name, (None, ""))
        state: dict[str, Any] = {"trouble": trouble, "since_s": since_s, "points": None, "seconds": None, "runs": {}}
        if follower is not None:
            state["runs"] = follower.troubled()
            with suppress(TrainmasterError):
                lag = follower.lag()
                state |= {"points": lag.points, "seconds": round(lag.seconds, 1), "behind": lag.runs, "refused": lag.refused}
        return state
