"""The thread that copies checkpoints and artifacts into the store, so that the main loop is never blocked by I/O."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections import deque

from trainmaster.agent.artifacts import keep
from trainmaster.agent.metrics.progress import LONG_S
from trainmaster.agent.mlflow.listener import logged_elsewhere
from trainmaster.agent.processes.process_tree import descendants, open_for_writing
from trainmaster.agent.supervise.peers import Peers
from trainmaster.wire.names import printable
from trainmaster.wire.processes import start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.checkpoints.collect import Collector
    from trainmaster.agent.checkpoints.overlooked import Overlooked
    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.transport.upload import Uploader

_SCAN_S = 0.5
_SCAN_MAX_S = 15.0
_TELL_EVERY_S = 10.0  # between two progress reports about artifacts
_SHARE = 5  # a scan that takes t seconds is followed by a pause of 5 t


class StoreWorker:
    """Methods queue work; `results` holds its outcome: ("staged" | "kept" | "not_kept" | "warned", fields)."""

    def __init__(self, start: Startup, progress: Progress) -> None:
        self._launch = start.launch
        collector = start.prepared.collector
        self._restored = start.prepared.restored
        self._collector = self._with_reports(collector) if collector is not None else None
        self._wake = start.wake
        self._ranks = start.ranks
        self._progress = progress
        self._peers = Peers(start.directory.path, start.launch)
        self._work: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._busy = 0
        self._reported = ""
        self._warned_elsewhere = False
        self._overlooked: Optional[Overlooked] = None
        self._look_due_s = 0.0
        self._began_s = time.time() - (time.monotonic() - start.runs_since_s)
        self._next_scan_s = time.monotonic() + _SCAN_S
        self.results: deque[tuple[str, dict[str, Any]]] = deque()
        self._uploader: Optional[Uploader] = None
        self._given_up = False

    def watch(self, now_s: float) -> None:
        """Queue a scan for checkpoints if one is due and the ranks run."""
        if self._collector is not None and self._busy == 0 and now_s >= self._next_scan_s and self._writing:
            self._put("scan")
        if self._launch["node_index"] == 0 and self._progress.stepping_s >= LONG_S and now_s >= self._look_due_s:
            self._look_due_s = now_s + LONG_S
            self._put("overlooked", None)

    def message(self, rank: int, message: dict[str, Any]) -> None:
        """Handle an SDK message about a checkpoint or an artifact."""
        if message.get("t") == "c" and isinstance(message.get("directory"), str):
            self._put("checkpoint", rank, message)
        elif message.get("t") == "a" and isinstance(message.get("path"), str):
            self._put("artifact", message)

    def finish(self, well: bool = True, quiet: bool = True) -> None:
        """Every rank has ended: scan once more, and keep the artifacts. `quiet`: no process that they left had to be killed."""
        if self._collector is not None:
            self._put("last", well and quiet)
        if self._launch["node_index"] == 0 and (self._launch["checkpoint_path"] or self._progress.last_step is not None):
            self._put("overlooked", well)
        if self._launch["artifacts"]:
            self._put("artifacts", well)
        if self._launch["ranks"] * self._launch["nodes"] > 1:
            self._put("tracked")

    def give_up(self) -> None:
        """Stop to collect: the directories no longer belong to this attempt."""
        self._given_up = True

    @property
    def peers_may_write(self) -> bool:
        """Whether other nodes of the gang may still write into the directory that is scanned here."""
        return self._collector is not None and bool(self._launch["checkpoint_path"]) and self._peers.run

    @property
    def idle(self) -> bool:
        """Whether no work is left."""
        return self._busy == 0 and (self._uploader is None or self._uploader.idle)

    @property
    def _writing(self) -> bool:
        """Whether a rank of the gang runs and no rank has failed. A rank that succeeded has finished its files."""
        ranks = self._ranks
        if not all(rank.running or rank.ended_well for rank in ranks):
            return False
        return any(rank.running for rank in ranks) or self._peers.run

    def _put(self, *work: Any) -> None:
        if self._given_up:
            return
        self._busy += 1
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            began_s = time.monotonic()
            try:
                self._do(*work)
                if self._reported and work[0] in ("scan", "last"):
                    self._report_problem("")
            except (OSError, ValueError) as error:
                self._report_problem(f"could not look for checkpoints or artifacts ({work[0]}): {error}")
            except Exception:  # noqa: BLE001 - last resort: if the thread died, no checkpoint would be collected any more
                words = f"could not look for checkpoints or artifacts ({work[0]}): see agent.log of this attempt"
                self._report_problem(words, traceback.format_exc())
            if self._uploader is not None:
                self._uploader.staging_ended()
            now_s = time.monotonic()
            self._next_scan_s = now_s + min(max(_SCAN_S, _SHARE * (now_s - began_s)), _SCAN_MAX_S)
            self._busy -= 1
            self._wake.set()

    def _report_problem(self, words: str, details: str = "") -> None:
        """Report a problem once, not at every scan; "": the problem is over."""
        if words != self._reported:
            sys.stderr.write(f"{details or words}\n" if words else "")
            self.results.append(("warned", {"topic": "gathering", "text": printable(words)}))
        self._reported = words

    def _do(self, what: str, *work: Any) -> None:
        if what == "scan":
            assert self._collector is not None
            open_files = open_for_writing(descendants(os.getpid()))
            elsewhere, complete = self._peers.open()
            # If a rank died before the list of open files was taken, its unfinished file looks closed.
            if self._writing and all(not rank.running or start_ticks(rank.pid) is not None for rank in self._ranks):
                self._staged(self._collector.scan(self._progress.step_at, True, open_files | elsewhere, complete))
            self._warn_elsewhere()
        elif what == "last":
            assert self._collector is not None
            self._collector.finished = work[0] and self._peers.ended_well
            self._staged(self._collector.scan(self._progress.step_at, False, *self._peers.open()))
            self._collector.report_unfinished()
            self._warn_elsewhere()
        elif what == "overlooked":
            self._warn_overlooked(work[0])
        elif what == "tracked":
            text = logged_elsewhere(self._launch, self._began_s)
            if text:
                self.results.append(("warned", {"topic": f"mlflow of n{self._launch['node_index']}", "text": text}))
        elif what == "checkpoint":
            rank, message = work
            step = message.get("step")
            self._staged(
                self._own_collector().sdk_checkpoint(rank, step, message["directory"], str(message.get("ranks") or "one"))
            )
        elif what == "artifact":
            path, said = work[0]["path"], work[0].get("kind")
            name = str(work[0].get("name") or path)
            kept = keep.keep_one(self._launch, path, name, said if isinstance(said, str) else None, self._missed)
            self._kept([kept] if kept is not None else [])
        else:
            self._keep_all(work[0])

    def _keep_all(self, expected: bool) -> None:
        """Keep the artifacts. If there are many, report the progress from time to time."""
        told_s, told = time.monotonic(), False
        for batch, done, count in keep.keep_artifacts(self._launch, self._missed, expected):
            self._kept(batch)
            self._wake.set()
            if done < count and time.monotonic() > told_s + _TELL_EVERY_S:
                told_s, told = time.monotonic(), True
                self.results.append(("warned", {"topic": "artifacts", "text": f"keeps its artifacts: {done} of {count}"}))
        if told:
            self.results.append(("warned", {"topic": "artifacts", "text": ""}))

    def _warn_elsewhere(self) -> None:
        """Warn once if this node's ranks write checkpoints into a directory of their own, which is not collected."""
        found = self._collector.written_elsewhere() if self._collector is not None and not self._warned_elsewhere else None
        if found is not None:
            self._warned_elsewhere = True
            kept = f"its ranks wrote {printable(found)} into the work directory of node {self._launch['node_index']} alone"
            advice = 'sdk.checkpoint(ranks="all") keeps a part of each node, --in-place lets all write into one directory'
            words = f"{kept}; only what node 0 has is kept of a checkpoint: {advice}"
            self.results.append(("warned", {"topic": f"checkpoints of n{self._launch['node_index']}", "text": words}))

    def _warn_overlooked(self, ended: Optional[bool]) -> None:
        """Warn if checkpoints are saved where nothing collects them. `ended`: whether it succeeded; None while it runs."""
        if self._overlooked is None:
            from trainmaster.agent.checkpoints.overlooked import Overlooked  # noqa: PLC0415 - most jobs never need it

            self._overlooked = Overlooked(self._launch, self._progress, self._began_s)
        collected = self._collector is not None and self._collector.collected
        text = self._overlooked.look(self._collector.advice() if collected and self._collector is not None else None, ended)
        if text is not None:
            self.results.append(("warned", {"topic": "checkpoint pattern", "text": text}))

    def _own_collector(self) -> Collector:
        """The collector, made here if a program without `checkpoint.path` uses the SDK."""
        if self._collector is None:
            from trainmaster.agent.checkpoints.collect import Collector  # noqa: PLC0415 - few jobs without a path need it

            self._collector = self._with_reports(Collector(self._launch))
        if self._launch.get("remote"):
            self._collector.start_early = self._remote_uploader().start_early
        return self._collector

    def _with_reports(self, collector: Collector) -> Collector:
        """Let the collector report checkpoints that are not in the store, and where a restart would begin."""
        if self._restored is not None and self._restored.id is not None:
            from trainmaster.agent.checkpoints.unstored import at_step  # noqa: PLC0415  # loaded with the collector

            about = any(point["approximate"] for point in self._launch["resume"] if point["id"] == self._restored.id)
            collector.unstored.begins = at_step(self._restored.step, about, self._restored.id)
        collector.unstored.tell = lambda text: self.results.append(("warned", {"topic": "checkpoint", "text": text}))
        collector.unstored.lost = lambda name, why: self.results.append(
            ("not_kept", {"what": "checkpoint", "name": name, "why": why})
        )
        return collector

    def _staged(self, parts: list[dict[str, Any]]) -> None:
        for part in parts:
            if "saved_s" in part:  # its step is not known
                part["after_s"] = round(max(0.0, part.pop("saved_s") - self._began_s), 1)
            self._deliver("staged", {**part, "progress": self._progress.evidence.record()})

    def _kept(self, artifacts: list[dict[str, Any]]) -> None:
        for artifact in artifacts:
            self._deliver("kept", artifact)

    def _missed(self, name: str, why: str) -> None:
        keep.complain(name, why)
        self.results.append(("not_kept", {"what": "artifact", "name": name, "why": why}))

    def _deliver(self, kind: str, fields: dict[str, Any]) -> None:
        """With a local store, staged content is the final result. With a remote store, it must be uploaded first."""
        if not self._launch.get("remote"):
            self.results.append((kind, fields))
            return
        self._remote_uploader().put(kind, fields)

    def _remote_uploader(self) -> Uploader:
        if self._uploader is None:
            from trainmaster.agent.transport.upload import Uploader  # noqa: PLC0415 - HTTP: only for a remote store

            self._uploader = Uploader(self._launch, self._uploaded)
        return self._uploader

    def _uploaded(self, kind: str, fields: dict[str, Any]) -> None:
        """Called by the uploader's thread with a result, or with nothing when it has become idle."""
        if kind:
            self.results.append((kind, fields))
        self._wake.set()
