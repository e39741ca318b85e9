"""Problems of the server itself: a small register in each server process, which other processes can read.

A process calls `say("disk", "…")` when it detects a problem, and `clear("disk")` when it is over. Repeating the same text is
free, so a loop may do it every turn. Entries are in memory and, after `keep`, in one page of a file that is created when the
process starts. The page is overwritten in place, which needs no space on a full disk. Standard library only.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.home import Home
from trainmaster.wire.processes import own_identity, same_process

PROCESSES = ("api", "control", "mirror")
TEXT_MAX = 400  # characters
TOPICS_MAX = 32
_PAGE_BYTES = 4096  # a file system reads and writes it as a unit
_LOOKS = 3  # reads, in case the page is being written


class Trouble(NamedTuple):
    """One problem. `since_s`: when it was first reported, in seconds since the epoch."""

    process: str
    topic: str
    text: str
    since_s: float


class Register:
    """The problems of one process. Thread-safe, and never raises."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.process = ""
        self._path: Path | None = None
        self._said: dict[str, Trouble] = {}

    def keep(self, home: Home, process: str) -> None:
        """Also write the entries to the home from now on, for other processes to read."""
        with self._lock:
            self.process, self._path = process, _file(home, process)
            self._said = {topic: one._replace(process=process) for topic, one in self._said.items()}
            self._write()

    def say(self, topic: str, text: str) -> bool:
        """Report a problem; its start time is that of the topic's first report. Returns whether the topic is new."""
        text = " ".join(text.split())[:TEXT_MAX]
        with self._lock:
            there = self._said.get(topic)
            if (there is not None and there.text == text) or (there is None and len(self._said) >= TOPICS_MAX):
                return False
            self._said[topic] = Trouble(self.process, topic, text, there.since_s if there is not None else time.time())
            self._write()
            return there is None

    def clear(self, topic: str) -> bool:
        """The problem is over. Returns whether there was one."""
        with self._lock:
            if self._said.pop(topic, None) is None:
                return False
            self._write()
            return True

    def said(self) -> list[Trouble]:
        """The current problems of this process, oldest first."""
        with self._lock:
            return sorted(self._said.values(), key=lambda one: one.since_s)

    def forget(self) -> None:
        """Reset, without a file (for tests)."""
        with self._lock:
            self.process, self._path, self._said = "", None, {}

    def _write(self) -> None:
        if self._path is None:
            return
        rows = [list(one[1:]) for one in sorted(self._said.values(), key=lambda one: one.since_s)]
        while len(page := _encoded(rows)) > _PAGE_BYTES:
            rows.pop()  # the newest: it stays in memory
        with contextlib.suppress(OSError):  # the home is gone or read-only: entries stay in memory
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, page.ljust(_PAGE_BYTES), 0)
            finally:
                os.close(descriptor)


def read(home: Home, process: str) -> list[Trouble]:
    """The problems of another process of this home; empty if that process is gone."""
    for _ in range(_LOOKS):
        try:
            page: dict[str, Any] = json.loads(_file(home, process).read_bytes())
            identity = page["process"]
            if not same_process(int(identity["pid"]), int(identity["start_ticks"]), str(identity["boot_id"])):
                return []
            return [Trouble(process, str(topic), str(text), float(since_s)) for topic, text, since_s in page["troubles"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return []


def everywhere(home: Home) -> list[Trouble]:
    """The problems of all processes of this home, oldest first; this process's are taken from memory."""

    return sorted(_everywhere(home), key=lambda one: one.since_s)


def _everywhere(home: Home) -> Iterator[Trouble]:
    yield from own.said()
    for process in PROCESSES:
        if process != own.process:
            yield from read(home, process)


def _file(home: Home, process: str) -> Path:
    return home.root / f"troubles.{process}.json"


def _encoded(rows: list[list[object]]) -> bytes:
    return json.dumps({"process": own_identity(), "troubles": rows}, ensure_ascii=False).encode("utf-8", "backslashreplace")


own = Register()
"""The register of this process."""
keep, say, clear = own.keep, own.say, own.clear
