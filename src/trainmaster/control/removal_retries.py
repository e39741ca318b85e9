"""Retries failed removals with growing intervals, and reports them as a trouble of the server."""

import logging
from dataclasses import dataclass, field

from trainmaster import troubles
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint

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


def _named(removal: Removal) -> str:
    if isinstance(removal, DeleteCheckpoint):
        return f"checkpoint {removal.checkpoint} of {removal.job}"
    return f"the {removal.kind} of {removal.job}"
