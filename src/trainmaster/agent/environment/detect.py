"""Records the environment of this agent's ranks, after they were started, so that the start is not delayed.

Data that the job declares is looked at likewise.

The record of an interpreter and a machine is made once, in a directory that all agents of a node share. Beside it is a note
with a fingerprint. If the fingerprint still matches, reading the note is enough. If several agents need a new record at the
same time, one makes it and the others wait, each in a thread of its own.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import zlib
from typing import cast

from trainmaster.agent.environment import installed_packages, machine
from trainmaster.agent.files.fast_json import read_json
from trainmaster.wire import environment as wire
from trainmaster.wire.processes import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.environment import EnvironmentRecord
    from trainmaster.wire.launch import Launch

_FORMAT = 3  # of records: those that an older version made are not used again
_END_S = 2.0  # the end of a short job waits so long for its record


class EnvironmentRecorder:
    """The environment of one attempt on this node. `digest` names its record, once it is known."""

    def __init__(self, launch: Launch) -> None:
        self._launch, self._store = launch, launch["environment_store"]
        command, variables = launch["command"], launch["environment"]
        python, self._certain = installed_packages.interpreter(command, launch["shell"], variables, launch["work"])
        self._installation = installed_packages.Installation(python, variables) if python is not None else None
        seen = self._installation.fingerprint() if self._installation is not None else []
        self._made_from = [_FORMAT, boot_id(), machine.fingerprint(), seen]
        path = self._installation.python if self._installation is not None else ""
        name = f"{path}\0{variables.get('PYTHONPATH', '')}\0{self._certain}"
        self._note = os.path.join(self._store, f"{zlib.crc32(os.fsencode(name)):08x}.json")
        self.digest: Optional[str] = self._noted()
        self._threads: list[threading.Thread] = []

    def record_in_background(self, outbox: Outbox) -> None:
        """In threads: if there is no record yet, make it and report it; report data that has changed."""
        if self.digest is None:
            self._begin("environment", self._record_and_report, outbox)
        if self._launch.get("data") and self._launch["node_index"] == 0:
            from trainmaster.agent.environment import data_changes  # noqa: PLC0415 - few jobs declare data

            self._begin("data", lambda outbox: data_changes.look(self._launch, outbox), outbox)

    def _begin(self, name: str, work: Callable[[Outbox], None], outbox: Outbox) -> None:
        self._threads.append(threading.Thread(target=work, args=(outbox,), name=name, daemon=True))
        self._threads[-1].start()

    def finish(self) -> None:
        """Wait for the threads for a short time."""
        for thread in self._threads:
            thread.join(_END_S)

    def record(self) -> str:
        """Make the record and its note, unless another agent does it first. Returns the record's name. Raises: OSError."""
        os.makedirs(self._store, mode=0o700, exist_ok=True)
        with open(os.path.join(self._store, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.digest = self._noted() or self._look()
        return self.digest

    def _record_and_report(self, outbox: Outbox) -> None:
        try:
            self.record()
        except OSError as error:  # full disk: the run continues without a record
            sys.stderr.write(f"the environment was not recorded: {error}\n")
            return
        outbox.report("environment", environment=self.digest)

    def _noted(self) -> Optional[str]:
        """The name of an existing record, if its fingerprint matches the current one."""
        try:
            note = read_json(self._note)
            return str(note["digest"]) if note["made_from"] == self._made_from else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _look(self) -> str:
        """Make the record and its note. Raises: OSError."""
        import json  # noqa: PLC0415 - an agent that only reads the note does not need it

        record = self._record()
        data = wire.encoded(record)
        name = wire.digest(data)
        _write(os.path.join(self._store, f"{name}.json"), data)
        if not record.get("unread"):  # else the next agent looks again
            _write(self._note, json.dumps({"digest": name, "made_from": self._made_from}).encode())
        return name

    def _record(self) -> EnvironmentRecord:
        found = self._installation
        if found is None:
            return {"python": None, "packages": {}, "editable": [], "torch": None, "machine": machine.describe()}
        packages, editable = found.packages()
        python: wire.Interpreter = {"path": found.python, "version": found.version(), "certain": self._certain}
        record: EnvironmentRecord = {
            "python": python,
            "packages": packages,
            "editable": editable,
            "built_from": found.built_from(editable),
            "torch": found.torch(packages),
            "machine": machine.describe(),
        }
        told = {"unnamed": found.unnamed(), "unread": found.unread()}
        return cast("EnvironmentRecord", {**record, **{name: value for name, value in told.items() if value}})


def _write(path: str, data: bytes) -> None:
    """Write a file atomically."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, path)
