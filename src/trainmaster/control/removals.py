"""Removes bytes that jobs no longer need: runs removals, retries failed ones, and reports these as a trouble of the server."""

import logging
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from trainmaster import troubles
from trainmaster.control.workers import Lane, Workers
from trainmaster.errors import TrainmasterError
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint
from trainmaster.model.storage_kinds import ON_NODES
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.engine import Engine

_REST_MAX = 256  # beats, about a second each
_TOPIC = "removal"
_log = logging.getLogger("trainmaster.control")

Removal = Clear | DeleteCheckpoint


@dataclass(slots=True)
class _Failed:
    """Consecutive failures, and the beats left until the next retry."""

    error: Exception
    times: int = 0
    rest: int = 0


@dataclass(slots=True)
class RemovalRetries:
    """Removals that failed. The job's state requests each of them at every beat; `due` says at which beats to retry.

    Failures are reported to `register`.
    """

    register: troubles.Register = field(default_factory=lambda: troubles.own)
    _failed: dict[Removal, _Failed] = field(default_factory=dict)

    def due(self, removal: Removal) -> bool:
        """Whether to retry now; called once per beat."""
        failed = self._failed.get(removal)
        if failed is None or failed.rest == 0:
            return True
        failed.rest -= 1
        return False

    def note(self, removal: Removal, error: Exception | None) -> None:
        """Record the result of an attempt."""
        if error is None:
            if self._failed.pop(removal, None) is not None:
                self._tell()
            return
        if removal not in self._failed:
            _log.error("%s cannot be removed yet: %s", _named(removal), error)
        failed = self._failed.setdefault(removal, _Failed(error))
        failed.error, failed.rest = error, min(2**failed.times - 1, _REST_MAX)
        failed.times = min(failed.times + 1, _REST_MAX)
        self._tell()

    def _tell(self) -> None:
        """Report the oldest failure and the number of others."""
        if not self._failed:
            self.register.clear(_TOPIC)
            return
        removal, failed = next(iter(self._failed.items()))
        more = f", and {len(self._failed) - 1} more" if len(self._failed) > 1 else ""
        self.register.say(_TOPIC, f"{_named(removal)} cannot be removed{more}; it is retried: {failed.error}")


@dataclass(slots=True)
class Removals:
    """Hands removals to workers and collects their results for the next tick.

    Law: only one worker at a time runs a removal.
    """

    engine: Engine
    blobs: Blobs
    workers: Workers
    retries: RemovalRetries = field(default_factory=RemovalRetries)
    deleted: list[DeleteCheckpoint] = field(default_factory=list)
    cleared: list[tuple[Clear, int]] = field(default_factory=list)  # with the number of bytes removed
    _running: "dict[Removal, Future[int | Exception]]" = field(default_factory=dict)

    def start(self, removal: Removal) -> None:
        """Start a removal, unless it runs already or its next retry is not due."""
        if removal not in self._running and self.retries.due(removal):
            self._running[removal] = self.workers.submit(Lane.DELETE, partial(self._remove, removal))

    def collect(self) -> None:
        """Collect the results of finished workers. Raises: any unexpected error of a worker."""
        for removal, running in list(self._running.items()):
            if running.done():
                del self._running[removal]
                self._take(removal, running.result())

    def _take(self, removal: Removal, found: int | Exception) -> None:
        self.retries.note(removal, found if isinstance(found, Exception) else None)
        if isinstance(found, Exception):
            return
        if isinstance(removal, DeleteCheckpoint):
            self.deleted.append(removal)
        else:
            self.cleared.append((removal, found))

    def _remove(self, removal: Removal) -> int | Exception:
        """Run by a worker. Returns the number of bytes removed on nodes, or the error: an unavailable store is retried."""
        try:
            if isinstance(removal, Clear) and removal.kind in ON_NODES:
                return self.engine.clear(removal.job, removal.kind)
            self.blobs.delete_tree(_prefix(removal))
        except (OSError, TrainmasterError) as error:
            return error
        return 0


def _prefix(removal: Removal) -> str:
    """Where its bytes are in the store."""
    if isinstance(removal, DeleteCheckpoint):
        return f"checkpoints/{removal.job}/{removal.checkpoint}"
    return f"{removal.kind}/{removal.job}"


def _named(removal: Removal) -> str:
    if isinstance(removal, DeleteCheckpoint):
        return f"checkpoint {removal.checkpoint} of {removal.job}"
    return f"the {removal.kind} of {removal.job}"
