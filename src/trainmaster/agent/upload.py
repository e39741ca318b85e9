"""The thread that brings what was staged on this node into a store that is no directory here.

Bounded: one checkpoint is on its way and at most one more waits; a newer one takes the place of the one that waits, so that a
slow store costs checkpoints, never memory or the newest. Parts of a gang's checkpoint and artifacts are never given up so:
without one of them the others would be worth nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from trainmaster.agent.remote import Absent, Body, Denied, Remote, Stale
from trainmaster.wire.names import MANIFEST, part_lock, part_stored, stored_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from trainmaster.wire.launch import Launch

_AT_ONCE = 4  # requests of one agent, each with a block of memory
_BATCH = 64  # small files for which addresses are asked at once
_SIGNED = 16  # parts likewise
_TRIES = 3  # of an upload that the store lost


class _Waiting:
    """What is to be brought away."""

    def __init__(self, kind: str, fields: Dict[str, Any]) -> None:
        self.kind, self.fields = kind, fields
        self.droppable = kind == "staged" and fields["parts_expected"] == 1


class Uploader:
    """Takes what `Gathering` staged and says by `done` what is durable in the store: ("staged" | "kept", fields)."""

    def __init__(self, launch: Launch, done: Callable[[str, Dict[str, Any]], None]) -> None:
        self._launch, self._done = launch, done
        self._remote = Remote(launch)
        self._lock = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._working = False
        self._thread: Optional[threading.Thread] = None
        self.dropped = 0  # checkpoints given up for newer ones

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is on its way."""
        with self._lock:
            return not self._waiting and not self._working

    def put(self, kind: str, fields: Dict[str, Any]) -> None:
        """Bring it away in its turn."""
        with self._lock:
            one = _Waiting(kind, fields)
            if one.droppable:
                for old in [each for each in self._waiting if each.droppable]:
                    self._waiting.remove(old)
                    self.dropped += 1
                    sys.stderr.write(f"checkpoint {old.fields['id']} is given up for a newer one: the store is slow\n")
                    self._discard(old)
            self._waiting.append(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="upload", daemon=True)
                self._thread.start()
            self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                self._working = True  # before it is taken: at no moment is neither so
                one = self._waiting.popleft()
            try:
                if one.kind == "staged":
                    self._checkpoint(one.fields)
                else:
                    self._artifact(one.fields)
                self._done(one.kind, one.fields)
            except (OSError, ValueError, KeyError) as error:
                what = f"checkpoint {one.fields['id']}" if one.kind == "staged" else f"artifact {one.fields['path']}"
                sys.stderr.write(f"{what} was not brought to the store: {error}\n")
                self._discard(one)
            finally:
                self._working = False
                self._done("", {})

    def _discard(self, one: _Waiting) -> None:
        """What is not in the store is no checkpoint: its copy here goes too."""
        if one.kind == "staged":
            shutil.rmtree(self._place(one.fields["id"]), ignore_errors=True)

    def _place(self, identifier: str) -> str:
        return os.path.join(self._launch["checkpoint_store"], identifier, f"n{self._launch['node_index']}")

    def _checkpoint(self, fields: Dict[str, Any]) -> None:
        """One part: its files, then, in one request, the end of their uploads and the manifest."""
        place = self._place(fields["id"])
        prefix = f"checkpoints/{self._launch['job']}/{fields['id']}/n{self._launch['node_index']}"
        lock = open(part_lock(place), "w")  # noqa: SIM115  held while it is read; the cache's bound leaves it alone
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            with open(os.path.join(place, MANIFEST), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
            names = {f"{prefix}/{stored_name(each['path'])}": each["bytes"] for each in json.loads(text)["files"]}
            files = [(name, os.path.join(place, name[len(prefix) + 1 :]), size) for name, size in names.items()]
            self._brought(files, lambda uploads: self._remote.ask("commit", part=prefix, manifest=text, uploads=uploads))
            _mark(place)
        finally:
            lock.close()

    def _artifact(self, fields: Dict[str, Any]) -> None:
        name = f"artifacts/{self._launch['job']}/{fields['digest']}"
        path = os.path.join(self._launch["artifact_store"], fields["digest"])
        self._brought(
            [(name, path, fields["bytes"])],
            lambda uploads: self._remote.ask("keep", name=name, bytes=fields["bytes"], uploads=uploads),
        )
        _mark(path)

    def _brought(self, files: List[Tuple[str, str, int]], finish: Callable[[Dict[str, Any]], Any]) -> None:
        """Bring files away and finish; begun again where the store has lost an upload. Raises: OSError."""
        for turn in range(_TRIES):
            begun: Dict[str, str] = {}
            try:
                finish(self._files(files, begun))
                return
            except Absent:
                if turn == _TRIES - 1:
                    raise
            except (Denied, Stale, OSError):
                self._abort(begun)
                raise

    def _abort(self, begun: Dict[str, str]) -> None:
        """Give parts back; what cannot be now is found by the store's garbage collection."""
        hasty = Remote(self._launch, patience_s=0.0)
        for name, upload in begun.items():
            try:
                hasty.ask("abort", name=name, upload=upload)
            except OSError:
                return

    def _files(self, files: List[Tuple[str, str, int]], begun: Dict[str, str]) -> Dict[str, Any]:
        """Send all; {name: {"upload", "etags"}} of those that have parts. `begun` tells of them at once."""
        uploads: Dict[str, Any] = {}
        with ThreadPoolExecutor(_AT_ONCE, "upload") as pool:
            for at in range(0, len(files), _BATCH):
                some = files[at : at + _BATCH]
                answer = self._remote.ask("begin", files=[{"name": name, "bytes": size} for name, _, size in some])
                told = {name: answer["uploads"][index] for index, (name, _, _) in enumerate(some)}
                begun.update({name: told[name]["id"] for name in told if told[name].get("id")})
                sending = [pool.submit(self._whole, file, told[file[0]]) for file in some if file[0] not in begun]
                for future in sending:
                    future.result()
                for file in [file for file in some if file[0] in begun]:
                    uploads[file[0]] = {"upload": begun[file[0]], "etags": self._parts(pool, file, told[file[0]])}
        return uploads

    def _whole(self, file: Tuple[str, str, int], told: Dict[str, Any]) -> None:
        name, path, size = file
        first: List[Optional[str]] = [told["url"]]

        def address() -> Optional[str]:
            if first:
                return first.pop()
            again = self._remote.ask("begin", files=[{"name": name, "bytes": size}])["uploads"][0]
            return str(again["url"]) if again["url"] is not None else None

        self._remote.put(address, name, Body(path, 0, size))

    def _parts(self, pool: ThreadPoolExecutor, file: Tuple[str, str, int], told: Dict[str, Any]) -> Dict[str, str]:
        """Send the parts of one file, a few at a time; their ETags by number."""
        name, path, size = file
        upload, part_bytes = told["id"], told["part_bytes"]
        numbers = list(range(1, -(-size // part_bytes) + 1))
        etags: Dict[str, str] = {}

        def signed(some: List[int]) -> Dict[str, str]:
            addresses: Dict[str, str] = self._remote.ask("sign", name=name, upload=upload, numbers=some)["urls"]
            return addresses

        def send(number: int, first: List[str]) -> None:
            def address() -> str:
                return first.pop() if first else signed([number])[str(number)]

            offset = (number - 1) * part_bytes
            etags[str(number)] = self._remote.put(address, name, Body(path, offset, min(part_bytes, size - offset)))

        for at in range(0, len(numbers), _SIGNED):
            some = numbers[at : at + _SIGNED]
            addresses = signed(some)
            for future in [pool.submit(send, number, [addresses[str(number)]]) for number in some]:
                future.result()
        return etags


def _mark(place: str) -> None:
    """The store has it: the cache may give it up."""
    with open(part_stored(place), "w"):
        pass
