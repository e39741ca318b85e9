"""Reads of content-addressed blobs that end with an error if the bytes do not have the digest in the name.

What is found damaged or missing is a trouble of the server (`tm doctor`) until it is stored again or removed.
"""

import hashlib
import io
import threading
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import BinaryIO

from trainmaster import troubles
from trainmaster.errors import DamagedError

_BUFFER = 1024 * 1024
_NAMED_MAX = 3
_TOPIC = "stored files"


class Damage:
    """The blobs of a store that are known to be damaged, or missing although the record needs them. Thread-safe."""

    def __init__(self, register: troubles.Register = troubles.own) -> None:
        self._lock, self._register = threading.Lock(), register
        self._names: dict[str, None] = {}
        self._missing: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def found(self, name: str) -> None:
        """Its bytes have another digest."""
        self.also([name], [])

    def only(self, names: Iterable[str], missing: Iterable[str], unread: AbstractSet[str]) -> None:
        """These are damaged, these are missing, and no others: all was read but `unread`, of which what was known stays."""
        with self._lock:
            self._names = dict.fromkeys([*names, *_within(self._names, unread)])
            self._missing = dict.fromkeys([*missing, *_within(self._missing, unread)])
            for name in self._names:
                self._missing.pop(name, None)
            self._say()

    def also(self, names: Iterable[str], missing: Iterable[str]) -> None:
        """These are damaged, and these missing, too."""
        with self._lock:
            self._names.update(dict.fromkeys(names))
            self._missing.update(dict.fromkeys(missing))
            self._say()

    def gone(self, name: str) -> None:
        """It, or what is below it, was stored again or deleted."""
        if self._names or self._missing:
            with self._lock:
                self._names, self._missing = _without(self._names, name), _without(self._missing, name)
                self._say()

    def _say(self) -> None:
        if not (self._names or self._missing):
            self._register.clear(_TOPIC)
            return
        most = 1 if self._names and self._missing else _NAMED_MAX
        found = (("damaged, by their digest", self._names), ("missing", self._missing))
        told = "; ".join(f"{state}: {_named(names, most)}" for state, names in found if names)
        after = "it is never run, shown or restored; code is stored anew by the next submit of it, the rest comes from a backup"
        self._register.say(_TOPIC, f"{told}; {after}; tm storage verify looks again")


def _without(names: dict[str, None], gone: str) -> dict[str, None]:
    return {one: None for one in names if one != gone and not one.startswith(f"{gone}/")}


def _within(names: Iterable[str], places: AbstractSet[str]) -> list[str]:
    """Those that are one of `places`, or below it."""
    parts = ((name, name.split("/")) for name in names)
    return [name for name, path in parts if any("/".join(path[:end]) in places for end in range(1, len(path) + 1))]


def _named(names: dict[str, None], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more


def damaged(name: str) -> DamagedError:
    """The error of a blob whose bytes were read and have another digest than its name says."""
    hint = "code is stored anew when it is submitted again; restore anything else from a backup of the store"
    return DamagedError(f"{name} is damaged in the store: its bytes do not have the digest in its name", hint)


def verified(file: BinaryIO, name: str, digest: str, damage: Damage) -> BinaryIO:
    """`file`, whose read at the end raises DamagedError if what was read has another SHA-256, and adds it to `damage`."""
    return io.BufferedReader(_Verifying(file, name, digest, damage), _BUFFER)


class _Verifying(io.RawIOBase):
    """Cannot seek: what is skipped would not be proven."""

    def __init__(self, file: BinaryIO, name: str, digest: str, damage: Damage) -> None:
        super().__init__()
        self._file, self._name, self._digest, self._damage = file, name, digest, damage
        self._sha256 = hashlib.sha256()

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of typeshed's any buffer
        """Raises: DamagedError at the end."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._sha256.update(data)
        if not data and self._sha256.hexdigest() != self._digest:
            self._damage.found(self._name)
            raise damaged(self._name)
        return len(data)

    def close(self) -> None:
        """Close the file, too."""
        self._file.close()
        super().close()
