"""What could not be removed yet: asked again ever less often, and told as a trouble of the server."""

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
    """How often in a row, and how many beats it rests before it is tried again."""

    error: Exception
    times: int = 0
    rest: int = 0


@dataclass(slots=True)
class RemovalRetries:
    """RemovalRetries that failed. State alone calls for each of them at every beat; `due` says which beats are heeded.

    `register` is where trouble is said.
    """

    register: troubles.Register = field(default_factory=lambda: troubles.own)
    _failed: dict[Removal, _Failed] = field(default_factory=dict)

    def due(self, removal: Removal) -> bool:
        """Whether it is to be tried now; called once a beat."""
        failed = self._failed.get(removal)
        if failed is None or failed.rest == 0:
            return True
        failed.rest -= 1
        return False

    def note(self, removal: Removal, error: Exception | None) -> None:
        """What came of a try."""
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
        """The one that has failed for longest, and how many more there are."""
        if not self._failed:
            self.register.clear(_TOPIC)
            return
        removal, failed = next(iter(self._failed.items()))
        more = f", and {len(self._failed) - 1} more" if len(self._failed) > 1 else ""
        self.register.say(_TOPIC, f"{_named(removal)} cannot be removed{more}; it is tried again: {failed.error}")


def _named(removal: Removal) -> str:
    if isinstance(removal, DeleteCheckpoint):
        return f"checkpoint {removal.checkpoint} of {removal.job}"
    return f"the {removal.kind} of {removal.job}"
