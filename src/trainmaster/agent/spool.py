"""What is to be told to the server and has not been acknowledged: reports, on disk while it is away, and points (`points`)."""

from __future__ import annotations

import contextlib
import json
import os
import threading

from trainmaster.agent.points import Points

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.points import Point


class Outbox:
    """Thread-safe. Reports are numbered from 1; reports and points stay until acknowledged. Two files hold them."""

    def __init__(self, path: str, points: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reports: list[dict[str, Any]] = []
        self._number = 0
        self._spooled = 0  # highest number that is on disk
        self.points = Points(points)
        self.waiting = threading.Event()  # there is something to send
        self.urgent = threading.Event()  # and it should not wait for more

    def report(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Queue a report, durable at once while the server is away; returns it with its number."""
        with self._lock:
            self._number += 1
            report = {"kind": kind, "n": self._number, **fields}
            self._reports.append(report)
            away = self._spooled > 0
        if away:
            self.spool()
        self.waiting.set()
        self.urgent.set()
        return report

    def point(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Queue a metric point."""
        self.points.put(rank, step, values)
        if not self.waiting.is_set():
            self.waiting.set()

    def batch(self) -> tuple[list[dict[str, Any]], list[Point]]:
        """All reports, and the oldest points, which stay taken until `points_sent` or `put_back`."""
        with self._lock:
            self.urgent.clear()
            self.waiting.clear()
            reports = list(self._reports)
        points = self.points.take()
        if not self.points.empty:
            self.waiting.set()
        return reports, points

    def put_back(self) -> None:
        """The points' request failed."""
        self.points.put_back()
        self.points.sync()
        self.waiting.set()

    def acknowledged(self, number: int) -> None:
        """The server has every report up to `number`."""
        with self._lock:
            self._reports = [report for report in self._reports if report["n"] > number]
            if self._reports:
                self.waiting.set()
            elif self._spooled:
                self._spooled = 0
                with contextlib.suppress(OSError):  # read again it is harmless: reports are idempotent
                    os.unlink(self._path)

    def spool(self) -> None:
        """Make what is not acknowledged durable; the server is away."""
        with self._lock:
            lines = [json.dumps(report) + "\n" for report in self._reports if report["n"] > self._spooled]
            if not lines:
                return
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    _append(descriptor, "".join(lines).encode())
                finally:
                    os.close(descriptor)
            except OSError:
                return  # a full disk: they are still in memory, and in exit.json at the end
            self._spooled = self._number

    @property
    def empty(self) -> bool:
        """Whether every report is acknowledged."""
        return not self._reports

    @property
    def pointless(self) -> bool:
        """Whether no point waits."""
        return self.points.empty


def _append(descriptor: int, data: bytes) -> None:
    """All of it, durably, or nothing: a torn line would spoil the one behind it. Raises: OSError."""
    size = os.fstat(descriptor).st_size
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
