"""Results of the thread that stores checkpoints and artifacts, on their way to the main loop."""

from __future__ import annotations

import sys
from collections import deque

from trainmaster.wire.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.files.stage import Check
    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.agent.transport.upload import Uploader
    from trainmaster.wire.launch import Launch


class Delivery:
    """`results` are for the main loop: ("staged" | "kept" | "not_kept" | "warned", fields).

    With a local store, staged content is the final result. With a remote store, it must be uploaded first.
    """

    def __init__(self, launch: Launch, wake: Wake) -> None:
        self._launch = launch
        self._wake = wake
        self._uploader: Optional[Uploader] = None
        self._problem = ""  # the one that is reported
        self.results: deque[tuple[str, dict[str, Any]]] = deque()
        self.failed: Callable[[str, Exception], None] = lambda id, error: None  # see `Uploader`

    @property
    def idle(self) -> bool:
        """Whether nothing is being uploaded."""
        return self._uploader is None or self._uploader.idle

    def deliver(self, kind: str, fields: dict[str, Any]) -> None:
        """Something is staged."""
        if not self._launch.get("remote"):
            self.results.append((kind, fields))
            return
        self._remote_uploader().put(kind, fields)

    def warn(self, topic: str, text: str) -> None:
        """Warn the user. An empty text clears the topic."""
        self.results.append(("warned", {"topic": topic, "text": text}))

    def not_kept(self, what: str, name: str, why: str) -> None:
        """A checkpoint or an artifact will never be in the store."""
        self.results.append(("not_kept", {"what": what, "name": name, "why": why}))

    def report_problem(self, words: str, details: str = "") -> None:
        """Report a problem once, not at every scan; "": the problem is over."""
        if words != self._problem:
            sys.stderr.write(f"{details or words}\n" if words else "")
            self.warn("gathering", printable(words))
        self._problem = words

    def start_early(self, identifier: str) -> Optional[Check]:
        """Start to upload a checkpoint that is still being staged; None if that is not possible now."""
        return self._remote_uploader().start_early(identifier) if self._launch.get("remote") else None

    def staging_ended(self) -> None:
        """Staging is over; see `Uploader.staging_ended`."""
        if self._uploader is not None:
            self._uploader.staging_ended()

    def _remote_uploader(self) -> Uploader:
        if self._uploader is None:
            from trainmaster.agent.transport.upload import Uploader  # noqa: PLC0415 - HTTP: only for a remote store

            self._uploader = Uploader(self._launch, self._uploaded)
            self._uploader.failed = lambda id, error: self.failed(id, error)
        return self._uploader

    def _uploaded(self, kind: str, fields: dict[str, Any]) -> None:
        """Called by the uploader's thread with a result, or with nothing when it has become idle."""
        if kind:
            self.results.append((kind, fields))
        self._wake.set()
