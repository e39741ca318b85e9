"""Reads what the program tells while it runs, and passes it on.

That is the output of its ranks and roles, rows of its files, messages of the SDK, and what it logs with a tracker's API.
"""

from __future__ import annotations

import time

from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import RoleProgress
from trainmaster.wire.names import FLAG_LOST, MESSAGES_LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.metrics.patterns import Search
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.agent.supervise.storing import StoreWorker
    from trainmaster.agent.transport.file_copies import FileCopies

READ_MAX_S = 0.25  # between two reads
_LOST = "some of what the program reported through the SDK could not be written and is lost, as when the disk is full"
_READ_MIN_S = 0.05  # likewise
_SHARE_S = 0.01  # of one read, per rank


class ProgramOutput:
    """The output of an agent's program. Its points and steps go to `progress`, its checkpoints and artifacts to the store."""

    def __init__(self, start: Startup, pattern: Optional[Search], progress: Progress, store_worker: StoreWorker) -> None:
        self._outbox = start.contact.sync().outbox
        self._directory = start.directory
        self._mlflow = start.prepared.mlflow
        self._files = start.prepared.metric_files
        if self._files is not None:
            self._files.start()
        self._store_worker = store_worker
        self.progress = progress
        sinks: list[tuple[Rank, Progress | RoleProgress]] = [(rank, progress) for rank in start.ranks]
        sinks += [(role, RoleProgress(self._outbox, role.role or "", progress)) for role in start.roles]
        automatic, log_max_bytes = start.launch.get("metrics_automatic", True), start.launch["log_max_bytes"]
        self.outputs = [
            RankOutput(rank, Parser(pattern, automatic, sink.epochs), log_max_bytes, sink, self._read_tracker)
            for rank, sink in sinks
        ]
        self.copies: Optional[FileCopies] = None  # on a node without the server's disk
        if start.launch.get("apart"):
            from trainmaster.agent.transport.file_copies import FileCopies  # noqa: PLC0415 - the usual agent has no use for it

            self.copies = FileCopies(start.launch, start.directory.path)
            self.copies.start()
        self._every_s = _READ_MIN_S
        self.due_s = time.monotonic()  # when `read` has something to do next

    def read(self, now_s: float) -> None:
        """Read what is new, if it is time to."""
        if now_s < self.due_s:
            return
        self._read_tracker()
        self._read_files()
        found = False
        for output in self.outputs:
            found = output.turn(time.monotonic() + _SHARE_S) or found
        self._pass_on()
        self._every_s = _READ_MIN_S if found else min(self._every_s * 1.5, READ_MAX_S)
        self.due_s = time.monotonic() + self._every_s

    def read_rest(self) -> None:
        """Every process has ended: read all that is left."""
        self._read_tracker()
        if self._files is not None:
            ranks = [output.rank for output in self.outputs if output.rank.role is None]
            self._files.finish(whole=not any(rank.signal or rank.exit_code for rank in ranks))
            self._read_files()
        for output in self.outputs:
            output.finish()
        self._pass_on()
        if self._mlflow is not None:
            self._mlflow.finish(self._outbox)

    def _pass_on(self) -> None:
        """Pass on what was read. If output cannot be read, warn: the training continues, but its steps are unknown."""
        self._outbox.warn("unread output", next((output.trouble for output in self.outputs if output.trouble), ""))
        self.tell_copies()
        if self._directory.has_flag(FLAG_LOST):
            self._outbox.warn(MESSAGES_LOST, _LOST)
        self._outbox.persist_points(dict(output.sdk_read() for output in self.outputs))
        self.progress.tell()
        for output in self.outputs:
            for message in output.messages:
                if output.rank.role is None or message.get("t") == "a":  # only ranks write checkpoints
                    self._store_worker.message(output.rank.number, message)
            output.messages.clear()

    def tell_copies(self) -> None:
        """Warn if output is not copied to the server, where people read it."""
        if self.copies is not None:
            self._outbox.warn("copies", self.copies.trouble)

    def _read_tracker(self) -> None:
        """Take metrics that the script logged with a tracker's API; these replace metrics parsed from its output."""
        if self._mlflow is None:
            return
        names = self._mlflow.pass_on(self.progress, self._store_worker.message, self._outbox)
        if names:
            for output in (one for one in self.outputs if one.rank.number == 0):
                output.stop_parsing(names)

    def _read_files(self) -> None:
        """Take the rows of the program's files. A metric that stands in them is not read from the output any more."""
        if self._files is None:
            return
        for step, values in self._files.take():
            self.outputs[0].leave_out(values)
            if step is None:
                self.progress.printed(0, None, values)
            else:
                self.progress.logged(step, values, counts=True)
        trouble = self._files.trouble
        self._outbox.warn("metric files", f"the files of metrics: {trouble}" if trouble else "")
