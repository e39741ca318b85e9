"""What is to be told to the server and has not been acknowledged: reports, and points (`points`).

A report that says that something is durable, or that a person should know something, is on this node's disk before it is
sent, whatever state the server is in. The others follow as soon as a request fails. The end has a record of its own
(`exit_record`), which is durable before it is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from itertools import takewhile

from trainmaster.agent.transport.points import BATCH_MAX, Points
from trainmaster.wire.names import METRIC_NAME_MAX, is_metric_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.transport.point_file import Point

BATCH_BYTES = 512 * 1024  # reports of one request, one at least: far below what a server takes
_ABOUT_MAX = 100  # characters of the names of a point that is given up
_DURABLE = frozenset(("staged", "kept", "not_kept", "warned", "run"))


class Outbox:
    """Thread-safe. Reports are numbered from 1; reports and points stay until acknowledged. Two files hold them."""

    def __init__(self, path: str, points: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reports: deque[tuple[dict[str, Any], str]] = deque()  # each with its line in the spool
        self._number = 0
        self.settled = 0  # reports that were acknowledged or given up
        self._spooled = 0  # highest number that is on disk; 0: there is no file
        self.points = Points(points)
        self.warned: dict[str, dict[str, Any]] = {}  # by topic, the last that was told
        self.waiting = threading.Event()  # there is something to send
        self.urgent = threading.Event()  # and it should not wait for more

    def report(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Queue a report, in the spool if it must not be lost or the spool is in use; returns it with its number."""
        return self.reports(kind, [fields])[0]

    def reports(self, kind: str, many: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Queue several reports of one kind: they are made durable together."""
        made = []
        with self._lock:
            for fields in many:
                self._number += 1
                made.append({"kind": kind, "n": self._number, **fields})
                self._reports.append((made[-1], json.dumps(made[-1]) + "\n"))
            if kind in _DURABLE or self._spooled:
                self._spool()
        self.waiting.set()
        self.urgent.set()
        return made

    def warn(self, topic: str, text: str) -> None:
        """Tell what a person would want to know, each text once; an empty text takes it back."""
        told = self.warned.get(topic)
        if (told["text"] if told is not None else "") != text:
            self.warned[topic] = self.report("warned", topic=topic, text=text)

    def point(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Queue a metric point, to be sent after the next `keep`."""
        odd = [name for name in values if not is_metric_name(name)]
        if odd:
            values = {name: value for name, value in values.items() if is_metric_name(name)}
            self.warn("metric names", "metrics are recorded only under printable names of at most "
                      f"{METRIC_NAME_MAX} characters; passed over, the first of them: {odd[0][:60]!a}")  # fmt: skip
        self.points.put(rank, step, values)

    def keep(self, read: dict[str, int]) -> None:
        """Bring the points that were queued into their file, from where they may be sent; see `Points.keep`."""
        self.points.keep(read)
        if self.points.dropped:
            self.warn(
                "metrics dropped", "metric points are dropped: the server is away, and the disk has no room for them"
            )
        if not self.points.empty:
            self.waiting.set()

    def batch(self, most: int = BATCH_MAX) -> tuple[list[dict[str, Any]], list[Point]]:
        """The oldest reports and then points, `most` together; the points stay taken until `points.sent` or `put_back`."""
        with self._lock:
            self.urgent.clear()
            self.waiting.clear()
            reports: list[dict[str, Any]] = []
            size = 0
            for report, line in self._reports:
                size += len(line)
                if len(reports) == most or (reports and size > BATCH_BYTES):
                    self.urgent.set()
                    break
                reports.append(report)
        points = self.points.take(most - len(reports))
        if self.urgent.is_set() or not self.points.empty:
            self.waiting.set()
        return reports, points

    def put_back(self) -> None:
        """The points' request failed."""
        self.points.put_back()
        self.points.sync()
        self.waiting.set()

    def give_up_one(self, why: str) -> None:
        """The server refuses the oldest report, or where there is none the oldest point: pass over it, with a word."""
        with self._lock:
            report = self._reports.popleft()[0] if self._reports else None
            self.settled += report is not None
        if report is None:
            taken = self.points.take(1)
            self.points.sent()
            about = "; ".join(f"{', '.join(values)[:_ABOUT_MAX]} at step {step}" for _, _, _, step, values in taken)
            self.warn("metrics not taken", f"a metric point was given up ({about}): {why}")
        elif report["kind"] != "warned":
            self.warn("reports not taken", f"a report of kind {report['kind']!r} was given up: {why}")

    def acknowledged(self, number: int) -> None:
        """The server has every report up to `number`."""
        with self._lock:
            while self._reports and self._reports[0][0]["n"] <= number:
                self._reports.popleft()
                self.settled += 1
            if self._reports:
                self.waiting.set()
            elif self._spooled:
                self._spooled = 0
                with contextlib.suppress(OSError):  # read again it is harmless: reports are idempotent
                    os.unlink(self._path)

    def spool(self) -> None:
        """Make every report durable that is not acknowledged; the server is away."""
        with self._lock:
            self._spool()

    @property
    def empty(self) -> bool:
        """Whether every report is acknowledged."""
        return not self._reports

    @property
    def pointless(self) -> bool:
        """Whether no point waits."""
        return self.points.empty

    def _spool(self) -> None:
        new = takewhile(lambda each: each[0]["n"] > self._spooled, reversed(self._reports))
        lines = [line for _, line in new][::-1]
        if not lines:
            return
        with contextlib.suppress(OSError):  # a full disk: tried again with the next; in memory, and in the record of the end
            _append(self._path, "".join(lines).encode(), new=not self._spooled)
            self._spooled = self._number


def _append(path: str, data: bytes, new: bool) -> None:
    """All of it, durably, or nothing: a torn line would spoil the one behind it. Raises: OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if new:
        from trainmaster.agent.files.stage import sync_directory  # noqa: PLC0415 - hashing, which jobs of a moment do without

        sync_directory(os.path.dirname(path))
