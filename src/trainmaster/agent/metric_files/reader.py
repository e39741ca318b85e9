"""Reads the files of `metrics.files` while the program writes them, in a thread of its own: their disk may be slow.

Only node 0 reads: the files of a gang are those of its first node.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from trainmaster.agent.files.globs import Glob
from trainmaster.agent.metric_files.event_file import EventFile, is_event_file
from trainmaster.agent.metric_files.rows import RowFile, noted
from trainmaster.agent.metrics.vocabulary import measured
from trainmaster.wire.names import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.metric_files.rows import Noted, Row
    from trainmaster.wire.launch import Launch

_PAUSE_S = 1.0
_SHARE = 5  # a turn that takes t seconds is followed by a pause of 5 t
_FILES_MAX = 100
_WAITING_MAX = 20_000  # rows that were read and not taken
_FINISH_S = 10.0


class FileReader:
    """The files of one agent. Made before its ranks start: what is in a file by then was written by others."""

    def __init__(self, launch: Launch) -> None:
        self._globs = [Glob(pattern, launch["work"]) for pattern in launch.get("metrics_files", [])]
        self._noted: dict[str, Noted] = {}
        self._files: dict[str, RowFile | EventFile] = {}
        self._rows: deque[Row] = deque()
        self._from: dict[str, str] = {}  # a metric -> the file that it was first read of
        self._shared = ""  # the first metric that stands in two files
        self._over = threading.Event()  # the ranks have ended
        self._whole = True  # by themselves, so that the last rows are whole
        self._thread: Optional[threading.Thread] = None
        self.trouble = ""  # of the last turn
        for path in self._paths([]):
            try:
                self._noted[path] = noted(path)
            except (OSError, ValueError):
                continue  # it is told when it is read

    @classmethod
    def of_launch(cls, launch: Launch) -> Optional[FileReader]:
        """None where nothing is to be read."""
        return cls(launch) if launch.get("metrics_files") and launch["node_index"] == 0 else None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, name="metric files", daemon=True)
        self._thread.start()

    @property
    def waits(self) -> bool:
        """Whether rows were read that are not taken."""
        return bool(self._rows)

    def take(self) -> list[Row]:
        """The rows that were read since the last call."""
        return [self._rows.popleft() for _ in range(len(self._rows))]

    def finish(self, whole: bool = True) -> None:
        """Every process has ended: read the rest. A disk that does not answer is not waited for.

        If not `whole`, a program failed: a last row without an end may be cut.
        """
        self._whole = whole
        self._over.set()
        if self._thread is not None:
            self._thread.join(_FINISH_S)
            if self._thread.is_alive():
                self.trouble = f"they were not read to their end within {_FINISH_S:g} s"

    def _run(self) -> None:
        last = False
        while not last:
            last, began_s = self._over.is_set(), time.monotonic()
            self._turn(last and self._whole)
            if not last:
                self._over.wait(max(_PAUSE_S, _SHARE * (time.monotonic() - began_s)))

    def _turn(self, last: bool) -> None:
        troubles = list[str]()
        for path in self._paths(troubles):
            file = self._files.get(path) or self._files.setdefault(path, metric_file(path, self._noted.get(path)))
            try:
                for row in file.news(last):
                    self._rows.append(row)
                    self._note_shared(path, row[1])
                    while len(self._rows) >= _WAITING_MAX and not self._over.is_set():
                        time.sleep(_PAUSE_S / 10)
            except (OSError, ValueError) as error:
                troubles.append(f"{os.path.basename(path)} cannot be read: {error}")
        self.trouble = "; ".join([*troubles, *filter(None, [self._shared])][:1])

    def _note_shared(self, path: str, values: dict[str, float]) -> None:
        for name in [] if self._shared else values:
            other = self._from.setdefault(name, path)
            if other != path and measured(name):
                both = " and ".join(printable(os.path.relpath(one, self._globs[0].root)) for one in (other, path))
                what = "which is one metric: of a step in both, the value read last counts"
                self._shared = f"{both} both have {printable(name)}, {what}"

    def _paths(self, troubles: list[str]) -> list[str]:
        found: dict[str, None] = {}
        for glob in self._globs:
            try:
                paths = [os.path.join(glob.root, path) for path in glob.expand()]
            except OSError as error:
                troubles.append(f"they cannot be listed: {error}")
                continue
            found.update(dict.fromkeys(path for path in paths if not os.path.isdir(path)))
        if len(found) > _FILES_MAX:
            troubles.append(f"the patterns match {len(found)} files, of which the first {_FILES_MAX} are read")
        return list(found)[:_FILES_MAX]


def metric_file(path: str, noted_: Optional[Noted] = None) -> RowFile | EventFile:
    """A reader for a file of metrics, by its name. `noted_`: what was in it before, and is not told."""
    return EventFile(path, noted_) if is_event_file(path) else RowFile(path, noted_)
