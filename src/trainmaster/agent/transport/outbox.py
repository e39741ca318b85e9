"""Queue of reports and metric points (`points`) that the server has not acknowledged yet.

A report that something is durable, or that a person should know something, is written to this node's disk before it is
sent, whatever the state of the server. Other reports are written when a request fails. The end of the attempt has its own
record (`exit_record`), which is durable before it is reported.
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

BATCH_BYTES = 512 * 1024  # size of the reports in one request (at least one report); far below the server's limit
_ABOUT_MAX = 100  # characters shown of the metric names of a dropped point
_DURABLE = frozenset(("staged", "kept", "not_kept", "warned", "run"))


class Outbox:
    """Thread-safe. Reports are numbered from 1. Reports and points stay until acknowledged; each kind has a file."""

    def __init__(self, path: str, points: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reports: deque[tuple[dict[str, Any], str]] = deque()  # each with its line of the file
        self._number = 0
        self.settled = 0  # reports that were acknowledged or dropped
        self._spooled = 0  # highest report number on disk; 0: there is no file
        self.points = Points(points)
        self.warned: dict[str, dict[str, Any]] = {}  # topic -> the last warning reported
        self.waiting = threading.Event()  # there is something to send
        self.urgent = threading.Event()  # send now, do not wait for more

    def report(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Queue a report and return it with its number. It is written to disk if it must be durable or the file is in use."""
        return self.reports(kind, [fields])[0]

    def reports(self, kind: str, many: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Queue several reports of one kind and make them durable together."""
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
        """Report a warning to the user. Each text is reported once; an empty text clears the topic."""
        told = self.warned.get(topic)
        if (told["text"] if told is not None else "") != text:
            self.warned[topic] = self.report("warned", topic=topic, text=text)

    def point(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Queue a metric point. It may be sent after the next `persist_points`."""
        odd = [name for name in values if not is_metric_name(name)]
        if odd:
            values = {name: value for name, value in values.items() if is_metric_name(name)}
            self.warn("metric names", "metrics are recorded only under printable names of at most "
                      f"{METRIC_NAME_MAX} characters; skipped, the first of them: {odd[0][:60]!a}")  # fmt: skip
        self.points.put(rank, step, values)

    def persist_points(self, read: dict[str, int]) -> None:
        """Write the queued points to their file. After that they may be sent; see `Points.persist`."""
        self.points.persist(read)
        if self.points.dropped:
            self.warn(
                "metrics dropped", "metric points are dropped: the server is away, and the disk has no room for them"
            )
        if not self.points.empty:
            self.waiting.set()

    def batch(self, most: int = BATCH_MAX) -> tuple[list[dict[str, Any]], list[Point]]:
        """The oldest reports, then points; `most` in total. Points stay taken until `points.sent` or `put_back`."""
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
        """The request that carried the points failed: queue them again."""
        self.points.put_back()
        self.points.sync()
        self.waiting.set()

    def drop_oldest(self, why: str) -> None:
        """Drop the oldest report that the server rejects (or the oldest point if there is no report), and report the loss."""
        with self._lock:
            report = self._reports.popleft()[0] if self._reports else None
            self.settled += report is not None
        if report is None:
            taken = self.points.take(1)
            self.points.sent()
            about = "; ".join(f"{', '.join(values)[:_ABOUT_MAX]} at step {step}" for _, _, _, step, values in taken)
            self.warn("metrics not taken", f"a metric point was dropped ({about}): {why}")
        elif report["kind"] != "warned":
            self.warn("reports not taken", f"a report of kind {report['kind']!r} was dropped: {why}")

    def acknowledged(self, number: int) -> None:
        """The server has stored every report up to `number`."""
        with self._lock:
            while self._reports and self._reports[0][0]["n"] <= number:
                self._reports.popleft()
                self.settled += 1
            if self._reports:
                self.waiting.set()
            elif self._spooled:
                self._spooled = 0
                with contextlib.suppress(OSError):  # harmless if it is read again: reports are idempotent
                    os.unlink(self._path)

    def spool(self) -> None:
        """Write every unacknowledged report to disk, because the server is unreachable."""
        with self._lock:
            self._spool()

    @property
    def durable(self) -> int:
        """Every report up to this number is on this node's disk, or is settled."""
        with self._lock:
            return max(self._spooled, self._reports[0][0]["n"] - 1 if self._reports else self._number)

    @property
    def empty(self) -> bool:
        """Whether every report is acknowledged."""
        return not self._reports

    @property
    def points_empty(self) -> bool:
        """Whether no point waits to be sent."""
        return self.points.empty

    def _spool(self) -> None:
        new = takewhile(lambda each: each[0]["n"] > self._spooled, reversed(self._reports))
        lines = [line for _, line in new][::-1]
        if not lines:
            return
        with contextlib.suppress(OSError):  # full disk: retried with the next report; still in memory and in the exit record
            _append(self._path, "".join(lines).encode(), new=not self._spooled)
            self._spooled = self._number


def _append(path: str, data: bytes, new: bool) -> None:
    """Append all of `data` durably, or nothing: a torn line would corrupt the line after it. Raises: OSError."""
    # Not blocking: a program may have put a pipe there, and the thread that waits for it would hold the lock.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
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
        from trainmaster.agent.files.stage import sync_directory  # noqa: PLC0415 - imports hashing: short jobs avoid it

        sync_directory(os.path.dirname(path))
