"""The thread that brings what was staged on this node into a store that is no directory here.

Bounded: one checkpoint is on its way and at most one more waits; a newer one takes the place of the one that waits, so that a
slow store costs checkpoints, never memory or the newest. Parts of a gang's checkpoint and artifacts are never given up so:
without one of them the others would be worth nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections import deque

from trainmaster.agent.transport.multipart import File, Sender
from trainmaster.agent.transport.remote_store import Absent, Remote, Stale
from trainmaster.wire import disks
from trainmaster.wire.names import MANIFEST, blob_name, part_lock, part_stored, printable, stored_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Union

    from trainmaster.agent.transport.early_upload import Ahead
    from trainmaster.wire.launch import Launch

_TRIES = 3  # of an upload that the store lost


class _Waiting:
    """What is to be brought away."""

    def __init__(self, kind: str, fields: Dict[str, Any]) -> None:
        self.kind, self.fields = kind, fields
        self.what = "checkpoint" if kind == "staged" else "artifact"
        step = fields.get("step")
        self.name = str(fields["path"] if kind == "kept" else fields["id"] if step is None else f"of step {step}")
        self.droppable = kind == "staged" and fields["parts_expected"] == 1


class Uploader:
    """Takes what `Gathering` staged and says by `done` what is durable in the store, ("staged" | "kept", fields), what never
    will be, ("not_kept", fields), and that the store is away, ("warned", fields).
    """

    def __init__(self, launch: Launch, done: Callable[[str, Dict[str, Any]], None]) -> None:
        self._launch, self._done = launch, done
        self._remote = Remote(launch)
        self._remote.waiting = self._waits
        self._lock = threading.Condition()
        self._waiting: deque[Union[_Waiting, Ahead]] = deque()
        self._working = False
        self._thread: Optional[threading.Thread] = None
        self._ahead: Optional[Ahead] = None  # being staged, on its way already
        self.dropped = 0  # checkpoints given up for newer ones

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is on its way."""
        with self._lock:
            return not self._waiting and not self._working

    def put(self, kind: str, fields: Dict[str, Any]) -> None:
        """Bring it away in its turn."""
        with self._lock:
            if self._ahead is not None and kind == "staged" and fields["id"] == self._ahead.id:
                self._ahead.end(fields)
                self._ahead = None
                return
            one = _Waiting(kind, fields)
            if one.droppable:
                for old in [each for each in self._waiting if isinstance(each, _Waiting) and each.droppable]:
                    self._waiting.remove(old)
                    self.dropped += 1
                    sys.stderr.write(f"checkpoint {old.fields['id']} is given up for a newer one: the store is slow\n")
                    self._discard(old)
            self._enqueue(one)

    def ahead(self, identifier: str) -> Optional[Ahead]:
        """Begin with a checkpoint that is only being staged; None while anything else is on its way."""
        from trainmaster.agent.transport.early_upload import Ahead  # noqa: PLC0415  # hashing: not for artifacts alone

        with self._lock:
            if self._waiting or self._working:
                return None
            self._ahead = Ahead(self._launch, identifier, self._place(identifier), self._prefix(identifier))
            self._enqueue(self._ahead)
            return self._ahead

    def staging_ended(self) -> None:
        """What was begun ahead and is not put by now was not staged."""
        with self._lock:
            if self._ahead is not None:
                self._ahead.end(None)
                self._ahead = None

    def _enqueue(self, one: Union[_Waiting, Ahead]) -> None:
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
                if isinstance(one, _Waiting):
                    self._bring(one, Sender(self._launch), None)
                else:
                    wrong = one.send()
                    if one.fields is not None:
                        self._bring(_Waiting("staged", one.fields), one.sender, wrong)
            finally:
                self._working = False
                self._done("", {})

    def _bring(self, one: _Waiting, sender: Sender, wrong: Optional[Exception]) -> None:
        """Bring it away, or say that it is not. `wrong`: what ended the sending of a part of it."""
        sender.remote.waiting = self._waits
        try:
            if wrong is not None:
                raise wrong
            if one.kind == "staged":
                self._checkpoint(one.fields, sender)
            else:
                self._artifact(one.fields, sender)
            self._done(one.kind, one.fields)
        except (OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"{one.what} {one.name} was not brought to the store: {error}\n")
            self._discard(one)
            if not isinstance(error, Stale):  # then nobody listens any more
                self._done("not_kept", {"what": one.what, "name": one.name, "why": str(error) or type(error).__name__})

    def _waits(self, text: str) -> None:
        """The store is away for long; nothing of it may stand there once it is back."""
        self._done("warned", {"topic": "store", "text": printable(text)})

    def _discard(self, one: _Waiting) -> None:
        """What is not in the store is no checkpoint: its copy here goes too."""
        if one.kind == "staged":
            disks.discard(self._place(one.fields["id"]))

    def _place(self, identifier: str) -> str:
        return os.path.join(self._launch["checkpoint_store"], identifier, f"n{self._launch['node_index']}")

    def _prefix(self, identifier: str) -> str:
        return f"checkpoints/{self._launch['job']}/{identifier}/n{self._launch['node_index']}"

    def _checkpoint(self, fields: Dict[str, Any], sender: Sender) -> None:
        """One part: its files, then, in one request, the end of their uploads and the manifest."""
        place = self._place(fields["id"])
        prefix = self._prefix(fields["id"])
        lock = open(part_lock(place), "w")  # noqa: SIM115  held while it is read; the cache's bound leaves it alone
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            with open(os.path.join(place, MANIFEST), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
            files = [
                File(f"{prefix}/{blob_name(each['path'])}", os.path.join(place, stored_name(each["path"])), each["bytes"])
                for each in json.loads(text)["files"]
            ]
            self._brought(files, lambda sent: self._remote.ask("commit", part=prefix, manifest=text, uploads=sent), sender)
            _mark(place)
        finally:
            lock.close()

    def _artifact(self, fields: Dict[str, Any], sender: Sender) -> None:
        name = f"artifacts/{self._launch['job']}/{fields['digest']}"
        path = os.path.join(self._launch["artifact_store"], fields["digest"])
        self._brought(
            [File(name, path, fields["bytes"])],
            lambda uploads: self._remote.ask("keep", name=name, bytes=fields["bytes"], uploads=uploads),
            sender,
        )
        _mark(path)

    def _brought(self, files: List[File], finish: Callable[[Dict[str, Any]], Any], sender: Sender) -> None:
        """Bring files away and finish; begun again where the store has lost an upload. Raises: OSError."""
        for turn in range(_TRIES):
            try:
                sender.send(files)
                finish(sender.uploads)
                return
            except OSError as error:
                sender.abort()
                if not isinstance(error, Absent) or turn == _TRIES - 1:
                    raise
                sender = Sender(self._launch)


def _mark(place: str) -> None:
    """The store has it: the cache may give it up."""
    with open(part_stored(place), "w"):
        pass
