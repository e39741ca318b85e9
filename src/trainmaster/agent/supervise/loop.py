"""The main loop that supervises a node's ranks: one thread, woken by signals, threads and timers. Only this thread decides.

Rules: see `children` for the ends of ranks. The exit record is durable before it is reported.
"""

from __future__ import annotations

import sys
import time

from trainmaster.agent.checkpoints import peers
from trainmaster.agent.environment.detect import EnvironmentRecorder
from trainmaster.agent.metrics import patterns
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.metrics.system_metrics import FIRST_S
from trainmaster.agent.processes import spawn
from trainmaster.agent.supervise import exit_record, outcome
from trainmaster.agent.supervise.children import Children
from trainmaster.agent.supervise.orders import Orders
from trainmaster.agent.supervise.program_output import READ_MAX_S, ProgramOutput
from trainmaster.agent.supervise.sampling import Sampler
from trainmaster.agent.supervise.storing import StoreWorker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainmaster.agent.launch.start import Startup

TELL_S = 0.02  # a job that ends earlier reports its start and its end in one request
POLL_S = 0.3  # a job that ends earlier never asks for orders
_COMMIT_MIN_S = 2.0  # for the last checkpoint, even if the grace period was shorter
_COMMIT_MAX_S = 3600.0
_COPIES_S = 60.0  # for the last copies of logs and records, on a node without the server's disk


class Attempt:
    """One agent's part of an attempt, from the start of its ranks to its last report."""

    def __init__(self, start: Startup) -> None:
        launch, ranks = start.launch, start.ranks
        self._start = start
        self._sync = start.contact.sync()
        self._outbox = self._sync.outbox
        pattern = patterns.of_launch(launch, self._outbox)
        progress = Progress.of_launch(self._outbox, launch, patterns.named(launch, pattern))
        restored = start.prepared.restored
        progress.epochs.given = restored.step if restored is not None and not restored.approximate else None
        self._store_worker = StoreWorker(start, progress)
        self._output = ProgramOutput(start, pattern, progress, self._store_worker)
        self._children = Children(start, self._outbox)
        self._sampler = Sampler(start, self._sync, self._children, self._output)
        self._orders = Orders(start, self._sync.answers)
        self._environment = EnvironmentRecorder(launch) if ranks else None
        self._end = outcome.End()
        self._output.due_s = self._sampler.due_s = time.monotonic() + TELL_S
        self._sync.heartbeat.state = self._heartbeat  # last, because other threads call it

    def run(self) -> None:
        """Supervise the ranks to their end, write the exit record, report it."""
        self._report_start()
        if self._start.ranks:
            self._watch()
            if self._orders.removed:
                return  # the record is not needed, and the path may belong to another attempt now
            self._end.ran_s = time.monotonic() - self._start.runs_since_s
            self._sampler.system.end()
            self._output.read_rest()
            if self._children.well:
                self._sampler.inactivity.end()
            self._wait_for_peers()
            self._children.finish_commands()
            self._store_rest()
            mlflow = self._start.prepared.mlflow
            self._end.run = mlflow.reports if mlflow is not None else []
        if self._environment is not None:
            self._environment.finish()
            self._end.environment = self._environment.digest
        self._end.over_memory = self._sampler.over_memory
        self._end.peak_memory_bytes = self._sampler.peak_bytes
        self._end.warned = list(self._outbox.warned.values())
        ended = outcome.ended(self._start, self._end, self._output.outputs, self._output.progress)
        try:
            exit_record.write(self._start.directory.path, {**ended, "home": self._start.launch.get("home", "")})
        except OSError as error:  # then the server's record is the only one
            sys.stderr.write(f"the record of the end could not be written: {error}\n")
        self._sync.send_points()
        if self._output.copies is not None:
            self._output.copies.record = self._end.environment or ""
            self._output.copies.finish(_COPIES_S)
            self._output.tell_copies()
        told = {name: value for name, value in ended.items() if name not in ("kind", "n")}
        self._outbox.report("ended", **{**told, "staged": [], "kept": [], "run": [], "not_kept": [], "warned": []})
        self._sync.finish()
        self._outbox.points.finish()

    def _report_start(self) -> None:
        start, launch = self._start, self._start.launch
        if not start.ranks:
            return
        if launch["nodes"] > 1:
            peers.record(start.directory.path, start.ranks)
        if launch["nodes"] > 1 and launch["node_index"] == 0 and start.prepared.rendezvous is not None:
            address, port = start.prepared.rendezvous
            self._outbox.report("rendezvous", address=address, port=port)
            self._sync.start_sender()
        restored = start.prepared.restored
        self._outbox.report(
            "started",
            restored=restored.id if restored else None,
            step=restored.step if restored else None,
            bad=list(restored.bad) if restored else [],
            environment=self._environment.digest if self._environment else None,
            at_s=time.monotonic(),
            **(restored.marks() if restored else {}),
        )
        anew = launch["attempt"] > 1 and launch["node_index"] == 0 and not launch["in_place"]
        if anew and launch["checkpoint_path"] and (restored is None or restored.id is None):
            aside = f"; {restored.aside}" if restored and restored.aside else ""
            given = "no checkpoint of this job was in the store when it started, so it was given none"
            self._outbox.warn("restart", given + aside)
        if self._output.copies is not None and self._environment is not None:
            self._output.copies.record = self._environment.digest or ""
        if self._environment is not None:
            self._environment.record_in_background(self._outbox)
        if spawn.escaped(start.ranks, launch):
            text = "its ranks could not enter their cgroup: processes that they leave behind may outlive them"
            self._outbox.warn("containment", text)

    def _watch(self) -> None:
        """Run until no process of the ranks' trees is left."""
        while self._children.reap():
            now_s = time.monotonic()
            self._take_orders(now_s)
            if self._orders.removed:
                self._store_worker.give_up()
            self._children.run_commands(self._orders.commands, now_s)
            self._children.step(now_s)
            self._output.read(now_s)
            self._sampler.sample(now_s)
            self._tell(now_s)
            self._report_results()
            self._store_worker.watch(now_s)
            due_s = min(self._output.due_s, self._sampler.due_s, self._orders.due_s, self._children.due_s)
            self._start.wake.wait(max(0.0, due_s - time.monotonic()))

    def _take_orders(self, now_s: float) -> None:
        """Stop if there is a new order to. Commands of people are put into `_orders.commands`."""
        grace_s = self._orders.take(now_s)
        if grace_s is not None:
            self._children.stop(now_s, grace_s, self._orders.tell_sdk)

    def _tell(self, now_s: float) -> None:
        """Start to communicate with the server, unless the job is very short."""
        alive_s = now_s - (self._start.ranks_began_s or now_s)
        if alive_s >= TELL_S:
            self._sync.start_sender()
            mlflow, restored = self._start.prepared.mlflow, self._start.prepared.restored
            if mlflow is not None:
                mlflow.open(self._start.directory.path, restored.step if restored else None)
        if alive_s >= POLL_S:
            self._sync.start_poller()
        if alive_s >= FIRST_S:
            self._sampler.system.start()

    def _report_results(self) -> None:
        """Report what was stored."""
        while self._store_worker.results:
            kind, fields = self._store_worker.results.popleft()
            if kind == "warned":
                if fields["topic"] in self._outbox.warned:
                    self._outbox.warn(**fields)
                else:  # report it even if it only clears a warning of an earlier attempt
                    self._outbox.warned[fields["topic"]] = self._outbox.report(kind, **fields)
                continue
            many = [fields]
            while self._store_worker.results and self._store_worker.results[0][0] == kind:
                many.append(self._store_worker.results.popleft()[1])
            ends = {"staged": self._end.staged, "kept": self._end.kept, "not_kept": self._end.not_kept}
            reports = self._outbox.reports(kind, many)
            ends[kind] += reports
            self._store_worker.reported(kind, reports)
        self._store_worker.settle(lambda: self._outbox.durable)

    def _wait_for_peers(self) -> None:
        """Wait while other nodes of the gang may write into the shared directory, which only node 0 scans."""
        while self._children.well and not self._orders.stopped and self._store_worker.peers_may_write:
            now_s = time.monotonic()
            self._take_orders(now_s)
            self._children.run_commands(self._orders.commands, now_s)  # it rejects new commands
            self._tell(now_s)
            self._store_worker.watch(now_s)
            self._report_results()
            self._start.wake.wait(min(self._orders.due_s - now_s, READ_MAX_S))

    def _store_rest(self) -> None:
        """Scan for checkpoints once more and keep the artifacts, until the time limit or the end of a grace period."""
        began_s = time.monotonic()
        children = self._children
        self._store_worker.finish(children.well, children.none_was_killed(), children.stopped_well, children.opened)
        while not self._store_worker.idle:
            now_s = time.monotonic()
            self._take_orders(now_s)
            until_s = began_s + _COMMIT_MAX_S
            if self._orders.stopped and self._children.deadline_s is not None:
                until_s = max(self._children.deadline_s, began_s + _COMMIT_MIN_S)
            if now_s >= until_s:
                words = "checkpoints and artifacts that were not in the store by then are dropped"
                self._outbox.warn("last commits", f"the time to store them after the ranks' end is over: {words}")
                break
            self._tell(now_s)
            self._report_results()
            self._start.wake.wait(min(until_s, self._orders.due_s) - now_s)
        self._report_results()

    def _heartbeat(self, with_devices: bool) -> dict[str, Any]:
        """The current state; called from the threads that send."""
        return {
            "at_s": round(time.monotonic(), 3),
            "running_s": round(time.monotonic() - self._start.runs_since_s, 3),
            "step": self._output.progress.last_step,
            **self._sampler.current(with_devices),
        }
