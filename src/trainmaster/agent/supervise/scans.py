"""Looks for checkpoints in the store's thread: which scans count, and what is reported of them."""

from __future__ import annotations

import os
import time

from trainmaster.agent.checkpoints.peers import Peers
from trainmaster.agent.metrics.progress import LONG_S
from trainmaster.agent.processes.process_tree import descendants, open_for_writing
from trainmaster.wire.names import printable
from trainmaster.wire.processes import start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.checkpoints.collect import Collector
    from trainmaster.agent.checkpoints.overlooked import Overlooked
    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.processes.process_tree import File, Process
    from trainmaster.agent.transport.delivery import Delivery

UNREAD_S = 30.0  # without a metric, after which files of metrics are looked for
_FIRST = 4  # checkpoints, after each of which the pattern is looked at
_FAR = 2  # times the step of a checkpoint: the losses are others there
_CLOCK_MOVED_S = 1.0  # it was set: a slow correction changes both clocks


class CheckpointScans:
    """The checkpoints of one agent.

    The main loop asks what is due, and tells what is reported. All else is called in the store's thread.
    """

    def __init__(self, start: Startup, progress: Progress, delivery: Delivery) -> None:
        self._start = start
        self._progress = progress
        self._delivery = delivery
        self.began_s = time.time() - time.monotonic() + start.runs_since_s  # when the ranks began, in seconds since the epoch
        self._peers = Peers(start.directory.path, start.launch)
        self._overlooked: Optional[Overlooked] = None
        self._look_due_s = 0.0
        self._metrics_due_s = start.runs_since_s + UNREAD_S
        self._warned_elsewhere = False
        collector = start.prepared.collector
        self._collector = self._with_reports(collector) if collector is not None else None

    @property
    def collects(self) -> bool:
        """Whether there is a pattern, or the program has used the SDK for checkpoints."""
        return self._collector is not None

    @property
    def writing(self) -> bool:
        """Whether a rank of the gang runs and no rank has failed. A rank that succeeded has finished its files."""
        ranks = self._start.ranks
        if not all(rank.running or rank.ended_well for rank in ranks):
            return False
        return any(rank.running for rank in ranks) or self._peers.run

    @property
    def peers_may_write(self) -> bool:
        """Whether other nodes of the gang may still write into the directory that is scanned here."""
        return self._collector is not None and bool(self._start.launch["checkpoint_path"]) and self._peers.run

    def may_overlook(self, well: bool) -> bool:
        """Whether the ranks may have saved checkpoints where nothing collects them. `well`: all have succeeded.

        Of some programs no step is read. If one failed after a while, its restart begins again.
        """
        launch, failed_late = self._start.launch, not well and time.time() - self.began_s >= LONG_S
        stepped = self._progress.last_step is not None
        return launch["node_index"] == 0 and (bool(launch["checkpoint_path"]) or stepped or failed_late)

    def overlooked_due(self, now_s: float) -> bool:
        """Whether to look for such checkpoints now. If so, the next time is later."""
        due = self._start.launch["node_index"] == 0 and self._progress.stepping_s >= LONG_S and now_s >= self._look_due_s
        if due:
            self._look_due_s = now_s + LONG_S
        return due

    def metrics_due(self, now_s: float) -> bool:
        """Whether to look for files of metrics now. If so, the next time is later."""
        launch, due = self._start.launch, now_s >= self._metrics_due_s
        if due:
            self._metrics_due_s = now_s + LONG_S
        return due and launch["node_index"] == 0 and not launch.get("metrics_files")

    def warn_metrics(self) -> None:
        """Warn if no metric was read, and a file has some."""
        text = ""
        if not self._start.contact.sync().outbox.points.measured:
            from trainmaster.agent.metric_files.advice import advice  # noqa: PLC0415 - CSV: most jobs print their metrics

            text = advice(self._start.launch["work"], self.began_s)
        self._delivery.warn("files of metrics", text)

    def scan(self) -> None:
        """Scan while the ranks run. The scan counts only if none of them has died."""
        assert self._collector is not None
        open_files = open_for_writing(descendants(os.getpid()), {rank.pid for rank in self._start.ranks})
        elsewhere, complete = self._peers.open()
        open_files.update(elsewhere)
        self._collector.observations.abandoned.look(open_files)
        # If a rank died before the list of open files was taken, its unfinished file looks closed.
        if self.writing and all(not rank.running or start_ticks(rank.pid) is not None for rank in self._start.ranks):
            staged = self._collector.scan(self._progress.step_at, True, open_files.keys(), complete)
            self._staged(staged)
            if staged and self._start.launch["node_index"] == 0 and self._collector.count <= _FIRST:
                self.warn_overlooked(None)  # a pattern that takes too little is told before a restart depends on it
        self._warn_elsewhere()

    def last_scan(self, well: bool, stopped: bool, opened: dict[File, set[Process]]) -> None:
        """Scan when every rank has ended. `well`: all have succeeded, and none of their processes had to be killed.

        `stopped`, `opened`: see `Children.stopped_well` and `Children.opened`.
        """
        assert self._collector is not None
        observations = self._collector.observations
        if well or stopped:
            observations.abandoned.end(opened, stopped)
            observations.finished, observations.stopped = self._peers.ended_well, stopped
        elsewhere, complete = self._peers.open()
        self._staged(self._collector.scan(self._progress.step_at, False, elsewhere.keys(), complete))
        self._collector.report_unfinished()
        self._warn_elsewhere()

    def take(self, rank: int, message: dict[str, Any]) -> None:
        """A rank has finished a checkpoint with the SDK."""
        if self._collector is None:  # a program without `checkpoint.path`
            from trainmaster.agent.checkpoints.collect import Collector  # noqa: PLC0415 - few jobs without a path need it

            self._collector = self._with_reports(Collector(self._start.launch))
        ranks = str(message.get("ranks") or "one")
        self._staged(self._collector.sdk_checkpoint(rank, message.get("step"), message["directory"], ranks))

    def reported(self, id: str) -> None:
        """A checkpoint is in the store, and its report is durable."""
        if self._collector is not None:
            self._collector.unstored.reported(id)

    def warn_overlooked(self, ended: Optional[bool]) -> None:
        """Warn if checkpoints are saved where nothing collects them. `ended`: whether it succeeded; None while it runs."""
        if self._overlooked is None:
            from trainmaster.agent.checkpoints.overlooked import Overlooked  # noqa: PLC0415 - most jobs never need it

            self._overlooked = Overlooked(self._start.launch, self._progress, self.began_s)
        collector, collected, denied = self._collector, None, ""
        if collector is not None:
            collected = collector.matches.advice() if collector.collected else None
            denied = collector.matches.denied
            if collected == "" and not collector.count:
                collected = self._overlooked.renumbered()
        text = self._overlooked.look(collected, ended, denied)
        if text is not None:
            self._delivery.warn("checkpoint pattern", text)

    def _warn_elsewhere(self) -> None:
        """Warn once if this node's ranks write checkpoints into a directory of their own, which is not collected."""
        if self._collector is None or self._warned_elsewhere:
            return
        found = self._collector.matches.written_elsewhere()
        if found is not None:
            self._warned_elsewhere = True
            node = self._start.launch["node_index"]
            kept = f"its ranks wrote {printable(found)} into the work directory of node {node} alone"
            advice = 'sdk.checkpoint(ranks="all") keeps a part of each node, --in-place lets all write into one directory'
            words = f"{kept}; only what node 0 has is kept of a checkpoint: {advice}"
            self._delivery.warn(f"checkpoints of n{node}", words)

    def _with_reports(self, collector: Collector) -> Collector:
        """Let the collector report checkpoints that are not in the store, and where a restart would begin."""
        restored = self._start.prepared.restored
        if restored is not None and restored.id is not None:
            from trainmaster.agent.checkpoints.unstored import at_step  # noqa: PLC0415  # loaded with the collector

            collector.unstored.begins = at_step(restored.step, restored.approximate, restored.id)
        collector.unstored.tell = lambda text: self._delivery.warn("checkpoint", text)
        collector.unstored.lost = lambda name, why: self._delivery.not_kept("checkpoint", name, why)
        collector.start_early = self._delivery.start_early
        self._delivery.failed = collector.unstored.not_uploaded
        return collector

    def _staged(self, parts: list[dict[str, Any]]) -> None:
        for part in parts:
            if "saved_s" in part:  # its step is not known
                after_s = part.pop("saved_s") - self.began_s
                moved_s = time.time() - time.monotonic() + self._start.runs_since_s - self.began_s
                # One from before this attempt was saved by an earlier one; if the clock was set, nobody knows when.
                if after_s >= 0.0 and abs(moved_s) < _CLOCK_MOVED_S:
                    part["after_s"] = round(after_s, 1)
            progress = _as_saved(self._progress.evidence.record(), part.pop("output_at", None))
            self._delivery.deliver("staged", {**part, "progress": progress})


def _as_saved(progress: dict[str, Any], step: Optional[int]) -> dict[str, Any]:
    """The program's progress when a checkpoint was saved, at `step` of its output, if its output is far beyond that by now."""
    last = progress["last_step"]
    if step is None or last is None or last < _FAR * max(1, step):
        return progress
    return {**progress, "last_step": step, "last": {}}
