"""The main loop that supervises a node's ranks: one thread, woken by signals, threads and timers. Only this thread decides.

Rules: A rank that ends by a signal ends the others at once. A failing exit ends them after a second, in which another rank's
signal may explain it. No process of the ranks' trees outlives the attempt. The exit record is durable before it is reported.
"""

from __future__ import annotations

import os
import sys
import time

from trainmaster.agent.environment.detect import EnvironmentRecorder
from trainmaster.agent.metrics import patterns, usage
from trainmaster.agent.metrics.output import RankOutput
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.progress import Progress, RoleProgress
from trainmaster.agent.metrics.system_metrics import FIRST_S, System
from trainmaster.agent.processes import process_tree, spawn
from trainmaster.agent.supervise import exit_record, outcome, peers
from trainmaster.agent.supervise.inactivity import Inactivity
from trainmaster.agent.supervise.leftovers import Leftovers, described
from trainmaster.agent.supervise.orders import Orders
from trainmaster.agent.supervise.stopping import Stopping
from trainmaster.agent.supervise.storing import StoreWorker
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.agent.supervise.exec_commands import ExecCommands

TELL_S = 0.02  # a job that ends earlier reports its start and its end in one request
POLL_S = 0.3  # a job that ends earlier never asks for orders
_OUTPUT_MIN_S, _OUTPUT_MAX_S = 0.05, 0.25  # between two reads of the output
_OUTPUT_SHARE_S = 0.01  # of one read, per rank
_SAMPLE_S, _SAMPLE_NEAR_S = 0.5, 0.1  # between two samples of the process tree; the shorter one near the memory limit
_SAMPLE_COST = 50  # a sample that takes t seconds is followed by a pause of 50 t
_EXPLAINED_S = 1.0  # how long a failing exit waits for another rank's signal
_REST_GRACE_S = 2.0  # from SIGTERM to SIGKILL for the others of a broken gang, and for processes that ranks leave behind
_LINGER_S = 0.2  # for processes that ranks leave behind to end by themselves, if they cannot be saving
_SAVERS_REPORTED_S = 2.0  # after so long, waiting for them is reported
_SAVERS = "every rank has ended"
_COMMIT_MIN_S = 2.0  # for the last checkpoint, even if the grace period was shorter
_COMMIT_MAX_S = 3600.0


class Attempt:
    """One agent's part of an attempt, from the start of its ranks to its last report."""

    def __init__(self, start: Startup) -> None:
        self._start = start
        self._launch = start.launch
        self._wake = start.wake
        self._ranks = start.ranks
        self._roles = start.roles
        self._sync = start.talk()
        self._outbox = self._sync.outbox
        self._sync.heartbeat = self._heartbeat
        pattern, log_max_bytes = patterns.of_launch(self._launch, self._outbox), self._launch["log_max_bytes"]
        self._progress = Progress.of_launch(self._outbox, self._launch, patterns.named(self._launch, pattern))
        automatic = self._launch.get("metrics_automatic", True)
        outputs: list[tuple[Rank, Progress | RoleProgress]] = [(rank, self._progress) for rank in self._ranks]
        outputs += [(role, RoleProgress(self._outbox, role.role or "")) for role in self._roles]
        parsers = [Parser(pattern, automatic, sink.epochs) for _, sink in outputs]
        self._outputs = [
            RankOutput(rank, parser, log_max_bytes, sink, self._read_tracker)
            for (rank, sink), parser in zip(outputs, parsers, strict=True)
        ]
        self._usage = usage.Usage(None if self._launch["cgroup"] else self._launch["memory_bytes"])
        self._devices = usage.Devices(self._launch["devices"])
        self._store_worker = StoreWorker(start, self._progress)
        self._recorder = process_tree.Recorder(os.path.join(start.directory, names.TREE))
        self._orders = Orders(start, self._sync)
        self._mlflow = start.mlflow
        first = self._ranks[0].number if self._ranks else 0
        self._system = System(self._outbox, self._usage, self._devices, first)
        job, busy = self._launch["job"], self._devices.busy
        self._inactivity = Inactivity(job, self._outbox, self._outputs, self._progress, busy)
        self._environment = EnvironmentRecorder(self._launch) if self._ranks else None
        self._stopping = Stopping(self._launch.get("contained", ()))
        self._execs: Optional[ExecCommands] = None  # commands beside the ranks; created for the first one
        self._end = outcome.End()
        self._left_s: Optional[float] = None  # when the last rank ended
        self._leftovers: Optional[Leftovers] = None  # the processes that the ranks left behind
        self._lingers_s = 0.0  # when to check these again
        self._swept = False
        now_s = time.monotonic()
        self._output_every_s = _OUTPUT_MIN_S
        self._output_due_s = now_s + TELL_S
        self._sample_due_s = now_s + TELL_S

    def run(self) -> None:
        """Supervise the ranks to their end, write the exit record, report it."""
        self._report_start()
        if self._ranks:
            self._watch()
            if self._orders.removed:
                return  # the record is not needed, and the path may belong to another attempt now
            self._end.ran_s = time.monotonic() - (self._start.ranks_began_s or self._start.began_s)
            self._read_rest()
            if self._well:
                self._inactivity.end()
            self._wait_for_peers()
            if self._execs is not None:
                self._execs.finish()
            self._store_rest()
            self._end.run = self._mlflow.reports if self._mlflow is not None else []
        if self._environment is not None:
            self._environment.finish()
            self._end.environment = self._environment.digest
        self._end.peak_memory_bytes = self._usage.peak_bytes
        self._end.warned = list(self._outbox.warned.values())
        ended = outcome.ended(self._start, self._end, self._outputs, self._progress)
        try:
            exit_record.write(self._start.directory, {**ended, "home": self._launch.get("home", "")})
        except OSError as error:  # then the server's record is the only one
            sys.stderr.write(f"the record of the end could not be written: {error}\n")
        self._sync.send_points()
        told = {name: value for name, value in ended.items() if name not in ("kind", "n")}
        self._outbox.report("ended", **{**told, "staged": [], "kept": [], "run": [], "not_kept": [], "warned": []})
        self._sync.finish()
        self._outbox.points.finish()

    def _report_start(self) -> None:
        if not self._ranks:
            return
        if self._launch["nodes"] > 1:
            peers.record(self._start.directory, self._ranks)
        if self._launch["nodes"] > 1 and self._launch["node_index"] == 0 and self._start.rendezvous is not None:
            address, port = self._start.rendezvous
            self._outbox.report("rendezvous", address=address, port=port)
            self._sync.start_sender()
        restored = self._start.restored
        self._outbox.report(
            "started",
            restored=restored.id if restored else None,
            step=restored.step if restored else None,
            bad=list(restored.bad) if restored else [],
            environment=self._environment.digest if self._environment else None,
            **(restored.marks() if restored else {}),
        )
        anew = self._launch["attempt"] > 1 and self._launch["node_index"] == 0 and not self._launch["in_place"]
        if anew and self._launch["checkpoint_path"] and (restored is None or restored.id is None):
            self._outbox.warn("restart", "no checkpoint of this job was in the store when it started, so it was given none")
        if self._environment is not None:
            self._environment.record_in_background(self._outbox)
        if spawn.escaped(self._ranks, self._launch):
            text = "its ranks could not enter their cgroup: processes that they leave behind may outlive them"
            self._outbox.warn("containment", text)

    def _watch(self) -> None:
        """Run until no process of the ranks' trees is left."""
        while spawn.reap([*self._ranks, *self._roles, *self._commands], self._start.began_s):
            now_s = time.monotonic()
            self._carry_out_orders(now_s)
            self._run_commands(now_s)
            self._handle_exits(now_s)
            self._stopping.step(now_s)
            self._read(now_s)
            self._sample(now_s)
            self._tell(now_s)
            self._report_results()
            self._store_worker.watch(now_s)
            self._wake.wait(max(0.0, self._due_s(now_s) - time.monotonic()))

    @property
    def _commands(self) -> list[spawn.Child]:
        return self._execs.children if self._execs is not None else []

    def _run_commands(self, now_s: float) -> None:
        """Startup and supervise commands beside the ranks."""
        if self._orders.commands and self._execs is None:
            from trainmaster.agent.supervise.exec_commands import ExecCommands  # noqa: PLC0415 - most jobs never need it

            self._execs = ExecCommands(self._start)
        if self._execs is not None:
            while self._orders.commands:
                self._execs.take(self._orders.commands.pop(0))
            self._execs.step(now_s)

    def _due_s(self, now_s: float) -> float:
        """When the loop has something to do next, unless it is woken earlier."""
        due = [self._output_due_s, self._sample_due_s, self._orders.due_s]
        if self._stopping.due_s is not None:
            due.append(self._stopping.due_s)
        if self._execs is not None and self._execs.due_s is not None:
            due.append(self._execs.due_s)
        if self._left_s is not None and not self._swept:
            due.append(self._lingers_s)
        failed_s = self._failed_s()
        if failed_s is not None and not self._stopping.active:
            due.append(failed_s + _EXPLAINED_S)
        return min(due)

    def _carry_out_orders(self, now_s: float) -> None:
        """Carry out orders."""
        grace_s = self._orders.take(now_s)
        if grace_s is not None:
            self._stop(now_s, grace_s)
        if self._orders.removed:
            self._store_worker.give_up()

    def _stop(self, now_s: float, grace_s: float) -> None:
        """Stop the ranks, roles and commands. Those that are running are marked as stopped by us."""
        for rank in [*self._ranks, *self._roles, *self._commands]:
            rank.stopped_by_us = rank.stopped_by_us or rank.running
        self._stopping.begin(now_s, grace_s)

    def _failed_s(self) -> Optional[float]:
        """When the first rank or role failed by itself; None if none has."""
        failed = [rank.ended_after_s for rank in [*self._ranks, *self._roles] if rank.failed]
        return self._start.began_s + min(failed) if failed else None

    def _handle_exits(self, now_s: float) -> None:
        """Decide what the end of some ranks means for the others and for processes that they left behind."""
        if any(rank.running for rank in self._ranks):
            failed_s = self._failed_s()
            if failed_s is None or self._stopping.active:
                return
            by_signal = any(rank.failed and rank.signal is not None for rank in [*self._ranks, *self._roles])
            if by_signal or now_s >= failed_s + _EXPLAINED_S:
                self._stop(now_s, _REST_GRACE_S)
            return
        if self._left_s is None:
            self._left_s, self._lingers_s = now_s, now_s + _LINGER_S
            self._leftovers = Leftovers(self._launch, self._ranks, [*self._roles, *self._commands])
            for role in [*self._roles, *self._commands]:  # from here on they end because the ranks have ended
                role.stopped_by_us = role.stopped_by_us or role.running
        if not self._swept and now_s >= self._lingers_s and not self._waits_for_savers(now_s):
            self._swept = True
            if self._stopping.active:
                self._stopping.terminate()  # processes started since; the grace period of saving ones continues
            else:
                self._stopping.begin(now_s, self._launch["grace_s"] if self._roles_run else _REST_GRACE_S)
        elif self._swept and self._roles and not self._roles_run:
            self._stopping.begin(now_s, _REST_GRACE_S)
            self._roles = []  # they are no longer needed

    def _waits_for_savers(self, now_s: float) -> bool:
        """Whether processes left by succeeded ranks may still be saving. If others are killed, that is reported."""
        assert self._left_s is not None
        assert self._leftovers is not None
        if not self._well or self._stopping.active:
            return False
        saving, grace_s = self._leftovers.saving(), self._launch["grace_s"]
        if saving and now_s < self._left_s + grace_s:
            if now_s > self._left_s + _SAVERS_REPORTED_S:
                self._outbox.warn("processes", f"{_SAVERS}; waits for {described(saving)} for {grace_s:g} s at most")
            self._lingers_s = now_s + _LINGER_S
            return True
        left = self._leftovers.left()
        self._outbox.warn("processes", f"still ran when every rank had ended, and was ended: {described(left)}" if left else "")
        return False

    @property
    def _well(self) -> bool:
        return all(rank.exit_code == 0 and not rank.stopped_by_us for rank in self._ranks)

    @property
    def _roles_run(self) -> bool:
        return any(role.running for role in self._roles)

    def _read(self, now_s: float) -> None:
        """Read the output of the ranks."""
        if now_s < self._output_due_s:
            return
        self._read_tracker()
        found = False
        for output in self._outputs:
            found = output.turn(time.monotonic() + _OUTPUT_SHARE_S) or found
        self._pass_on()
        self._output_every_s = _OUTPUT_MIN_S if found else min(self._output_every_s * 1.5, _OUTPUT_MAX_S)
        self._output_due_s = time.monotonic() + self._output_every_s

    def _read_rest(self) -> None:
        self._system.end()
        self._read_tracker()
        for output in self._outputs:
            output.finish()
        self._pass_on()
        if self._mlflow is not None:
            self._mlflow.finish(self._outbox)

    def _pass_on(self) -> None:
        """Pass on what was read. If output cannot be read, warn: the training continues, but its steps are unknown."""
        self._outbox.warn("unread output", next((output.trouble for output in self._outputs if output.trouble), ""))
        self._outbox.persist_points(dict(output.sdk_read() for output in self._outputs))
        self._progress.tell()
        for output in self._outputs:
            for message in output.messages:
                if output.rank.role is None or message.get("t") == "a":  # only ranks write checkpoints
                    self._store_worker.message(output.rank.number, message)
            output.messages.clear()

    def _read_tracker(self) -> None:
        """Take metrics that the script logged with a tracker's API; these replace metrics parsed from its output."""
        if self._mlflow is not None and self._mlflow.pass_on(self._progress, self._store_worker.message, self._outbox):
            for output in (one for one in self._outputs if one.rank.number == 0):
                output.stop_parsing()

    def _sample(self, now_s: float) -> None:
        """Sample the process trees and their usage."""
        if now_s < self._sample_due_s:
            return
        heads = process_tree.children(os.getpid())
        trees = [[head, *process_tree.descendants(head)] for head in heads]
        self._system.pids = [pid for pids in trees for pid in pids]
        self._recorder.note(self._system.pids)
        used = dict(zip(heads, self._usage.sample(trees)))  # noqa: B905 - Python 3.9
        for rank in [*self._ranks, *self._roles]:
            size, cpu_s = used.get(rank.pid, (0, 0.0)) if rank.running else (0, 0.0)
            rank.peak_memory_bytes, rank.cpu_s = max(rank.peak_memory_bytes, size), max(rank.cpu_s, cpu_s)
        if not self._stopping.active:
            self._inactivity.look(now_s, self._system.pids, self._sync.gang_step)
        if self._usage.over and not self._end.over_memory:
            self._end.over_memory = True
            self._stop(now_s, 0.0)
        took_s = time.monotonic() - now_s
        self._sample_due_s = now_s + max(_SAMPLE_NEAR_S if self._usage.near else _SAMPLE_S, _SAMPLE_COST * took_s)

    def _tell(self, now_s: float) -> None:
        """Startup to communicate with the server, unless the job is very short."""
        alive_s = now_s - (self._start.ranks_began_s or now_s)
        if alive_s >= TELL_S:
            self._sync.start_sender()
            if self._mlflow is not None:
                self._mlflow.open(self._start.directory, self._start.restored.step if self._start.restored else None)
        if alive_s >= POLL_S:
            self._sync.start_poller()
        if alive_s >= FIRST_S:
            self._system.start()

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
            ends[kind] += self._outbox.reports(kind, many)

    def _wait_for_peers(self) -> None:
        """Wait while other nodes of the gang may write into the shared directory, which only node 0 scans."""
        while self._well and not self._orders.stopped and self._store_worker.peers_may_write:
            now_s = time.monotonic()
            grace_s = self._orders.take(now_s)
            if grace_s is not None:
                self._stopping.begin(now_s, grace_s)
            self._run_commands(now_s)  # it rejects new commands
            self._tell(now_s)
            self._store_worker.watch(now_s)
            self._report_results()
            self._wake.wait(min(self._orders.due_s - now_s, _OUTPUT_MAX_S))

    def _store_rest(self) -> None:
        """Scan for checkpoints once more and keep the artifacts, until the time limit or the end of a grace period."""
        began_s = time.monotonic()
        told = self._outbox.warned.get("processes")
        if told is not None and told["text"].startswith(_SAVERS):
            self._outbox.warn("processes", "")  # they have ended by themselves
            told = None
        self._store_worker.finish(self._well, quiet=told is None or not told["text"])
        while not self._store_worker.idle:
            now_s = time.monotonic()
            grace_s = self._orders.take(now_s)
            if grace_s is not None:
                self._stopping.begin(now_s, grace_s)
            until_s = began_s + _COMMIT_MAX_S
            if self._orders.stopped and self._stopping.deadline_s is not None:
                until_s = max(self._stopping.deadline_s, began_s + _COMMIT_MIN_S)
            if now_s >= until_s:
                words = "checkpoints and artifacts that were not in the store by then are dropped"
                self._outbox.warn("last commits", f"the time to store them after the ranks' end is over: {words}")
                break
            self._tell(now_s)
            self._report_results()
            self._wake.wait(min(until_s, self._orders.due_s) - now_s)
        self._report_results()

    def _heartbeat(self, with_devices: bool) -> dict[str, Any]:
        """The current state; called from the threads that send."""
        return {
            "at_s": round(time.monotonic(), 3),
            "running_s": round(time.monotonic() - (self._start.ranks_began_s or self._start.began_s), 3),
            "step": self._progress.last_step,
            "memory_bytes": self._usage.memory_bytes,
            "cpu_s": round(self._usage.cpu_s, 3),
            "gpu": self._devices.read() if with_devices else [],
        }
