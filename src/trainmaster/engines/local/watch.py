"""Notices at once that an agent has ended: one thread with one epoll over the pidfds of live agents."""

import contextlib
import os
import select
import threading
from collections.abc import Callable

from trainmaster.engines.local.attempts import Identity
from trainmaster.model.ids import AgentKey

_BATCH = 64


class Watcher:
    """Calls `wake` when a watched agent ends. This is only a hint: the state is read from files."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._descriptors: dict[AgentKey, int] = {}
        self._keys: dict[int, AgentKey] = {}
        self._epoll = select.epoll()
        self._close_reader, self._close_writer = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._close_reader, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="agents-watch", daemon=True)
        self._thread.start()

    def watch(self, key: AgentKey, agent: Identity) -> bool:
        """Watch this process; False if it is already gone. Watching twice is harmless."""
        with self._lock:
            if key in self._descriptors:
                return True
            try:
                descriptor = os.pidfd_open(agent.pid)
            except OSError:
                return False
            if not agent.alive:  # checked after opening: so the descriptor cannot refer to another process
                os.close(descriptor)
                return False
            self._descriptors[key] = descriptor
            self._keys[descriptor] = key
            self._epoll.register(descriptor, select.EPOLLIN)
            return True

    def watching(self, key: AgentKey) -> bool:
        """Whether the key's agent, or the process that becomes it, is watched and has not ended."""
        with self._lock:
            return key in self._descriptors

    def close(self) -> None:
        """End the thread and close all descriptors."""
        with contextlib.suppress(OSError):
            os.write(self._close_writer, b".")
        self._thread.join()
        with self._lock:
            for descriptor in [*self._keys, self._close_reader, self._close_writer]:
                os.close(descriptor)
            self._keys.clear()
            self._descriptors.clear()
        self._epoll.close()

    def _run(self) -> None:
        while True:
            ready = [descriptor for descriptor, _ in self._epoll.poll(maxevents=_BATCH)]
            with self._lock:
                for descriptor in ready:
                    key = self._keys.pop(descriptor, None)
                    if key is not None:
                        del self._descriptors[key]
                        self._epoll.unregister(descriptor)
                        os.close(descriptor)
            if self._close_reader in ready:
                return
            self._wake()
