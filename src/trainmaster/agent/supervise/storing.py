"""The thread that copies checkpoints and artifacts into the store, so that the main loop is never blocked by I/O."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque

from trainmaster.agent.artifacts import keep
from trainmaster.agent.mlflow.listener import logged_elsewhere
from trainmaster.agent.supervise.scans import CheckpointScans
from trainmaster.agent.transport.delivery import Delivery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.processes.process_tree import File, Process

    Work = tuple[str, Callable[..., None], tuple[Any, ...]]  # its name, and the call

_SCAN_S = 0.5
_SCAN_MAX_S = 15.0
_SOON_S = 25.0  # at the end, a look that is due so soon is made
_TELL_EVERY_S = 10.0  # between two progress reports about artifacts
_SHARE = 5  # a scan that takes t seconds is followed by a pause of 5 t


class StoreWorker:
    """Methods queue work for the thread; `results` holds its outcome."""

    def __init__(self, start: Startup, progress: Progress) -> None:
        self._launch = start.launch
        self._wake = start.wake
        self._delivery = Delivery(start.launch, start.wake)
        self._scans = CheckpointScans(start, progress, self._delivery)
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._busy = 0  # calls that are queued or running
        self._next_scan_s = time.monotonic() + _SCAN_S
        self._given_up = False
        self._reported: deque[dict[str, Any]] = deque()  # checkpoints whose report may not be durable yet

    def watch(self, now_s: float) -> None:
        """Queue a scan for checkpoints if one is due and the ranks run."""
        if self._scans.collects and self._busy == 0 and now_s >= self._next_scan_s and self._scans.writing:
            self._put("scan", self._scans.scan)
        if self._scans.overlooked_due(now_s):
            self._put("overlooked", self._scans.warn_overlooked, None)
        if self._scans.metrics_due(now_s):
            self._put("metrics", self._scans.warn_metrics)

    def message(self, rank: int, message: dict[str, Any]) -> None:
        """Handle an SDK message about a checkpoint or an artifact."""
        if message.get("t") == "c" and isinstance(message.get("directory"), str):
            self._put("checkpoint", self._scans.take, rank, message)
        elif message.get("t") == "a" and isinstance(message.get("path"), str):
            self._put("artifact", self._keep_one, message)

    def finish(
        self, well: bool = True, quiet: bool = True, stopped: bool = False, opened: Optional[dict[File, set[Process]]] = None
    ) -> None:
        """Every rank has ended: scan once more, and keep the artifacts. `quiet`: no process that they left had to be killed.

        `stopped`, `opened`: see `Children.stopped_well` and `Children.opened`.
        """
        if self._scans.collects:
            self._put("last", self._scans.last_scan, well and quiet, stopped, opened or {})
        if self._scans.may_overlook(well):
            self._put("overlooked", self._scans.warn_overlooked, well)
        if self._scans.metrics_due(time.monotonic() + _SOON_S):
            self._put("metrics", self._scans.warn_metrics)
        if self._launch["artifacts"]:
            self._put("artifacts", self._keep_all, well)
        if self._launch["ranks"] * self._launch["nodes"] > 1:
            self._put("tracked", self._warn_tracked)

    def give_up(self) -> None:
        """Stop to collect: the directories no longer belong to this attempt."""
        self._given_up = True

    def reported(self, kind: str, reports: list[dict[str, Any]]) -> None:
        """These results are reported, but that may not be durable yet: the disk may be full."""
        if kind == "staged":
            self._reported += reports

    def settle(self, durable: Callable[[], int]) -> None:
        """`durable`: up to which number reports are. It waits for their writer, so it is asked only if it matters."""
        number = durable() if self._reported else 0
        while self._reported and self._reported[0]["n"] <= number:
            self._scans.reported(self._reported.popleft()["id"])

    @property
    def results(self) -> deque[tuple[str, dict[str, Any]]]:
        """("staged" | "kept" | "not_kept" | "warned", fields); the caller takes them."""
        return self._delivery.results

    @property
    def peers_may_write(self) -> bool:
        """Whether other nodes of the gang may still write into the directory that is scanned here."""
        return self._scans.peers_may_write

    @property
    def idle(self) -> bool:
        """Whether no work is left."""
        return self._busy == 0 and self._delivery.idle

    def _put(self, name: str, call: Callable[..., None], *arguments: Any) -> None:
        if self._given_up:
            return
        self._busy += 1
        self._work.put((name, call, arguments))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            name, call, arguments = self._work.get()
            began_s = time.monotonic()
            try:
                call(*arguments)
                if name in ("scan", "last"):
                    self._delivery.report_problem("")
            except (OSError, ValueError) as error:
                self._delivery.report_problem(f"could not look for checkpoints or artifacts ({name}): {error}")
            except Exception:  # noqa: BLE001 - last resort: if the thread died, no checkpoint would be collected any more
                words = f"could not look for checkpoints or artifacts ({name}): see agent.log of this attempt"
                self._delivery.report_problem(words, traceback.format_exc())
            self._delivery.staging_ended()
            now_s = time.monotonic()
            self._next_scan_s = now_s + min(max(_SCAN_S, _SHARE * (now_s - began_s)), _SCAN_MAX_S)
            self._busy -= 1
            self._wake.set()

    def _keep_one(self, message: dict[str, Any]) -> None:
        """Keep an artifact that the program has named."""
        path, said = message["path"], message.get("kind")
        name = str(message.get("name") or path)
        kept = keep.keep_one(self._launch, path, name, said if isinstance(said, str) else None, self._missed)
        if kept is not None:
            self._delivery.deliver("kept", kept)

    def _keep_all(self, expected: bool) -> None:
        """Keep the artifacts. If there are many, report the progress from time to time."""
        told_s, told = time.monotonic(), False
        for batch, done, count in keep.keep_artifacts(self._launch, self._missed, expected):
            for kept in batch:
                self._delivery.deliver("kept", kept)
            self._wake.set()
            if done < count and time.monotonic() > told_s + _TELL_EVERY_S:
                told_s, told = time.monotonic(), True
                self._delivery.warn("artifacts", f"keeps its artifacts: {done} of {count}")
        if told:
            self._delivery.warn("artifacts", "")

    def _missed(self, name: str, why: str) -> None:
        keep.complain(name, why)
        self._delivery.not_kept("artifact", name, why)

    def _warn_tracked(self) -> None:
        """Warn if other ranks than rank 0 logged through MLflow's client."""
        text = logged_elsewhere(self._launch, self._scans.began_s)
        if text:
            self._delivery.warn(f"mlflow of n{self._launch['node_index']}", text)
