"""The thread that uploads staged checkpoints and artifacts to a remote store.

The queue is bounded: one checkpoint is being uploaded and at most one more waits. A newer checkpoint replaces the waiting
one, so a slow store costs checkpoints, but never memory and never the newest checkpoint. Parts of a gang's checkpoint and
artifacts are not replaced: without one part the others are useless.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections import deque

from trainmaster.agent.transport.multipart import FAILURES, File, Sender
from trainmaster.agent.transport.remote_store import Absent, Remote, Stale
from trainmaster.wire import disks
from trainmaster.wire.names import MANIFEST, blob_name, part_lock, part_stored, printable, stored_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Union

    from trainmaster.agent.transport.early_upload import EarlyUpload
    from trainmaster.wire.launch import Launch

_TRIES = 3  # for an upload that the store lost


class _Waiting:
    """A staged checkpoint or artifact that waits for its upload."""

    def __init__(self, kind: str, fields: Dict[str, Any]) -> None:
        self.kind, self.fields = kind, fields
        self.what = "checkpoint" if kind == "staged" else "artifact"
        step = fields.get("step")
        about = "about " if fields.get("approximate") else ""
        self.name = str(fields["path"] if kind == "kept" else fields["id"] if step is None else f"of {about}step {step}")
        self.droppable = kind == "staged" and fields["parts_expected"] == 1


class Uploader:
    """Uploads what `StoreWorker` staged. Results go to `done`: ("staged" | "kept", fields) when durable in the store,
    ("not_kept", fields) when it never will be, ("warned", fields) when the store is unreachable.
    """

    def __init__(self, launch: Launch, done: Callable[[str, Dict[str, Any]], None]) -> None:
        self._launch, self._done = launch, done
        self._remote = Remote(launch)
        self._remote.waiting = self._waits
        self._lock = threading.Condition()
        self._waiting: deque[Union[_Waiting, EarlyUpload]] = deque()
        self._working = False
        self._thread: Optional[threading.Thread] = None
        self._early: Optional[EarlyUpload] = None  # being staged and uploaded at the same time
        self.failed: Callable[[str, Exception], None] = lambda id, error: None  # called with the id of a checkpoint
        self.dropped = 0  # checkpoints replaced by newer ones

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being uploaded."""
        with self._lock:
            return not self._waiting and not self._working

    def put(self, kind: str, fields: Dict[str, Any]) -> None:
        """Queue it for upload."""
        with self._lock:
            if self._early is not None and kind == "staged" and fields["id"] == self._early.id:
                self._early.end(fields)
                self._early = None
                return
            one = _Waiting(kind, fields)
            if one.droppable:
                for old in [each for each in self._waiting if isinstance(each, _Waiting) and each.droppable]:
                    self._waiting.remove(old)
                    self.dropped += 1
                    sys.stderr.write(f"checkpoint {old.fields['id']} is dropped for a newer one: the store is slow\n")
                    self._discard(old)
            self._enqueue(one)

    def start_early(self, identifier: str) -> Optional[EarlyUpload]:
        """Start to upload a checkpoint that is still being staged; None while anything else is queued or uploading."""
        from trainmaster.agent.transport.early_upload import EarlyUpload  # noqa: PLC0415  # hashing: artifacts do not need it

        with self._lock:
            if self._waiting or self._working:
                return None
            early = EarlyUpload(self._launch, identifier, self._place(identifier), self._prefix(identifier))
            self._enqueue(early)
            self._early = early
            return early

    def staging_ended(self) -> None:
        """Staging is over: an early upload whose checkpoint was not `put` by now has failed to stage."""
        with self._lock:
            if self._early is not None:
                self._early.end(None)
                self._early = None

    def _enqueue(self, one: Union[_Waiting, EarlyUpload]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="upload", daemon=True)
            thread.start()
            self._thread = thread  # only one that runs
        self._waiting.append(one)
        self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                self._working = True  # set before the item is taken, so that `idle` is never true in between
                one = self._waiting.popleft()
            try:
                if isinstance(one, _Waiting):
                    self._upload(one, Sender(self._launch), None)
                else:
                    wrong = one.send()
                    if one.fields is not None:
                        self._upload(_Waiting("staged", one.fields), one.sender, wrong)
            finally:
                self._working = False
                self._done("", {})

    def _upload(self, one: _Waiting, sender: Sender, wrong: Optional[Exception]) -> None:
        """Upload it and report the result. `wrong`: the error that ended its early upload."""
        sender.remote.waiting = self._waits
        try:
            if wrong is not None:
                raise wrong
            if one.kind == "staged":
                self._checkpoint(one.fields, sender)
            else:
                self._artifact(one.fields, sender)
            self._done(one.kind, one.fields)
        except FAILURES as error:
            sys.stderr.write(f"{one.what} {one.name} was not brought to the store: {error}\n")
            self._discard(one)
            if not isinstance(error, Stale):  # then the server accepts no report either
                self._done("not_kept", {"what": one.what, "name": one.name, "why": str(error) or type(error).__name__})
            if one.kind == "staged":
                self.failed(one.fields["id"], error)

    def _waits(self, text: str) -> None:
        """The store is unreachable for long, or ("") answers again."""
        self._done("warned", {"topic": "store", "text": printable(text)})

    def _discard(self, one: _Waiting) -> None:
        """Delete the local copy of a checkpoint that did not reach the store: it is no checkpoint."""
        if one.kind == "staged":
            disks.discard(self._place(one.fields["id"]))

    def _place(self, identifier: str) -> str:
        return os.path.join(self._launch["checkpoint_store"], identifier, f"n{self._launch['node_index']}")

    def _prefix(self, identifier: str) -> str:
        return f"checkpoints/{self._launch['job']}/{identifier}/n{self._launch['node_index']}"

    def _checkpoint(self, fields: Dict[str, Any], sender: Sender) -> None:
        """Upload one part: first its files, then one request that completes their uploads and commits the manifest."""
        place = self._place(fields["id"])
        prefix = self._prefix(fields["id"])
        lock = open(part_lock(place), "w")  # noqa: SIM115  held while it is read, so that cache eviction skips it
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            with open(os.path.join(place, MANIFEST), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
            files = [
                File(f"{prefix}/{blob_name(each['path'])}", os.path.join(place, stored_name(each["path"])), each["bytes"])
                for each in json.loads(text)["files"]
            ]
            self._upload_files(files, sender, "commit", {"part": prefix, "manifest": text})
            _mark(place)
        finally:
            lock.close()

    def _artifact(self, fields: Dict[str, Any], sender: Sender) -> None:
        name = f"artifacts/{self._launch['job']}/{fields['digest']}"
        path = os.path.join(self._launch["artifact_store"], fields["digest"])
        size = fields["bytes"]
        self._upload_files([File(name, path, size)], sender, "keep", {"name": name, "bytes": size})
        _mark(path)

    def _upload_files(self, files: List[File], sender: Sender, what: str, fields: Dict[str, Any]) -> None:
        """Upload files and finish with a request `what`. Starts again if the store has lost an upload. Raises: OSError."""
        for turn in range(_TRIES):
            try:
                sender.send(files)
                there = self._remote.ask(what, **fields, uploads=sender.uploads, compares=True).get("there")
                if there:
                    sender.compare(there, files)
                    self._remote.ask(what, **fields, uploads={})
                return
            except OSError as error:
                sender.abort()
                if not isinstance(error, Absent) or turn == _TRIES - 1:
                    raise
                sender = Sender(self._launch)


def _mark(place: str) -> None:
    """Record that the store has it, so that the cache may evict it. If that fails, it is in the store nevertheless."""
    try:
        with open(part_stored(place), "w"):
            pass
    except OSError as error:
        sys.stderr.write(f"{place} stays in the cache: {error}\n")
