"""A workload live: the control loop, its stores and the local engine, with real agents and processes on stand-in GPUs.

Only time is the test's: no real second decides anything. Every process waits for a lock that the driver holds, and so ends
when the driver says so.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TextIO

from simulated import Said
from sync_server import SyncServer, sync_server
from waiting import deadline
from workloads import NAME, Planned, Workload

from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop, Recorder
from trainmaster.control.workers import Inline
from trainmaster.engines.local import starting
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.commands import AgentReport, ConfigureCluster, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State, StopFor
from trainmaster.model.nodes import Node
from trainmaster.model.spec import CodeCopy
from trainmaster.ports.engine import Observation, Phase
from trainmaster.ports.store import NewRow
from trainmaster.server.agents.orders import orders
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.migrate import migrate
from trainmaster.testing.builders import origin

BEGIN_S = 1_700_000_000.0  # a real date
_SETTLED_S = 60.0  # of real time, for everything that follows from one moment
_MEASURED = ("ago_s",)  # of an agent's report, in real time


@dataclass
class Clock:
    """The time of the workload."""

    time_s: float = BEGIN_S

    def now_s(self) -> float:
        """As `ports.clock.Clock`."""
        return self.time_s


class Engine(LocalEngine):
    """The local engine, whose agents' measurements of time are replaced by the workload's."""

    placed_s: Mapping[str, float]
    clock: Clock

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """As `LocalEngine`."""
        return {key: self._in_time(key, seen) for key, seen in super().observe(keys).items()}

    def _in_time(self, key: AgentKey, seen: Observation) -> Observation:
        if seen.outcome is None:
            return seen
        ran_s = self.clock.time_s - self.placed_s.get(key.job, self.clock.time_s)
        return replace(seen, outcome=replace(seen.outcome, ran_s=ran_s, ended_ago_s=0.0, failed_ago_s=0.0))


@dataclass
class Live:
    """A server in this process, driven moment by moment."""

    home: Home
    work: Workload
    agents: SyncServer
    clock: Clock = field(default_factory=Clock)
    placed_s: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    _locks: dict[str, TextIO] = field(default_factory=dict)
    _taken: int = 0
    _seq: int = 0

    def __post_init__(self) -> None:
        """Start control."""
        migrate(self.home)
        self.inbox, self.events = SqlInbox(self.home.inbox_db), SqlEventStore(self.home.events_db)
        self.engine = Engine(self.home, self.work.nodes, lambda: None)
        self.engine.placed_s, self.engine.clock = self.placed_s, self.clock
        runner = EffectRunner(self.engine, FsBlobs(self.home.blobs), str, Inline())
        self.loop = ControlLoop(Recorder(self.events, lambda: None), self.inbox, runner, self.clock, Random(0))
        self.loop.load()
        self.inbox.accept([NewRow("rules", ConfigureCluster(self.work.rules, "ann"), BEGIN_S)])
        self._settle(frozenset())

    def inventory(self) -> list[Node]:
        """Its nodes."""
        return self.engine.inventory()

    def moment(self, at_s: float, ends: Sequence[str] = ()) -> None:
        """Let time pass until `at_s` of the workload: jobs end, others are submitted, and everything follows."""
        self.clock.time_s = BEGIN_S + at_s
        for job in ends:
            self._locks.pop(job).close()
        self._see_end(frozenset(ends))
        rows = [
            NewRow(f"submit-{n}", self._submit(n, one), self.clock.time_s)
            for n, one in enumerate(self.work.jobs, 1)
            if one.submit_s == at_s
        ]
        if rows:
            self.inbox.accept(rows)
        self._settle(frozenset(ends))
        self._tell(at_s)

    def _submit(self, n: int, one: Planned) -> SubmitJob:
        """Its program waits for a lock, which it gets when the job is to end."""
        directory = self.home.root / "project"
        directory.mkdir(exist_ok=True)
        lock = directory / f"{NAME}-{n}"
        held = self._locks[f"{NAME}-{n}"] = lock.open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
        spec = replace(one.spec, command=("flock", "-s", str(lock), "true", str(one.spec.command)))
        return SubmitJob("", spec, origin(str(directory), user=one.member), CodeCopy(in_place=True))

    def _see_end(self, jobs: frozenset[str]) -> None:
        """Wait until all their processes are gone, so that control sees it of all at once, as a replay does."""
        over = [key for key in self.loop.world.live_keys() if key.job in jobs]
        gone = (Phase.ENDED, Phase.GONE)
        deadline(lambda: all(one.phase in gone for one in self.engine.observe(over).values()), f"{jobs} to end", _SETTLED_S)

    def _settle(self, ends: frozenset[str]) -> None:
        """Tick until nothing moves: what is to end has ended, what starts runs, what is stopped is gone."""
        until_s, calm = time.monotonic() + _SETTLED_S, 0
        while calm < 2:
            before = self.events.head().last_seq
            self._deliver()
            self._see_end(frozenset(id for id, run in self.loop.world.workload.running.items() if run.stopping))
            self.loop.watch.probe = True
            self.loop.watch.next_beat_s = 0.0
            while self.loop.tick(self.clock.time_s) == 0.0:
                pass
            still = self.events.head().last_seq == before and not self._moving(ends)
            calm = calm + 1 if still else 0
            if not still:
                assert time.monotonic() < until_s, f"at {self.clock.time_s - BEGIN_S:g}: {self._moving(ends)}"
                time.sleep(0.01)

    def _moving(self, ends: frozenset[str]) -> list[str]:
        jobs = self.loop.world.jobs
        found = [f"{id} is {job.state}" for id, job in jobs.items() if job.state is State.STARTING]
        found += [f"{id} is stopping" for id, run in self.loop.world.workload.running.items() if run.stopping]
        return found + [f"{id} is to end and {jobs[id].state}" for id in ends if id in jobs and not jobs[id].state.ended]

    def _deliver(self) -> None:
        """As the api: what agents report goes into the inbox. Their ends are seen by control itself."""
        requests = self.agents.requests[self._taken :]
        self._taken += len(requests)
        for request in requests:
            for report in request["reports"]:
                if report["kind"] != "ended":
                    told = {name: value for name, value in report.items() if name not in _MEASURED}
                    self.inbox.accept([NewRow(f"{request['key']}:{report['n']}", AgentReport(request["key"], told), self.clock.time_s)])
        for key in self.loop.world.live_keys():
            wanted = orders(self.loop.world.jobs[key.job], key)
            if wanted != self.agents.orders.get(str(key), []):
                self.agents.give(str(key), *(dict(order) for order in wanted))
        self.placed_s.update({id: run.placed_s for id, run in self.loop.world.workload.running.items()})

    def _tell(self, at_s: float) -> None:
        rows = self.events.events(self._seq, 1_000_000)
        for row in rows:
            self._seq, job = row.seq, row.job or ""
            match row.event:
                case ev.Placed(allocation=given):
                    self.said.append((at_s, "starts", job, " ".join(share.node for share in given.shares)))
                case ev.StopOrdered(stop_for=why, reason=reason):
                    assert why in (StopFor.EVICT, StopFor.SHRINK), reason
                    self.said.append((at_s, "makes way", job, reason.rpartition(" ")[2]))
        queued = self.loop.world.workload.waiting
        now = {id: self.loop.world.jobs[id].reason for id in queued}
        self.said += [(at_s, "waits", id, text) for id, text in sorted(now.items()) if self.reasons.get(id) != text]
        self.reasons = now

    def close(self) -> None:
        """End everything that still runs."""
        for held in self._locks.values():
            held.close()
        self._locks = {}
        while self.loop.world.workload.running:
            self._settle(frozenset(self.loop.world.workload.running))
        starting.stop_spawner(self.home)
        self.engine.close()
        self.events.close()
        self.inbox.close()


@contextmanager
def live(home: Home, work: Workload) -> Iterator[Live]:
    """A server for this workload."""
    home.root.mkdir(parents=True, exist_ok=True)
    starting.start_spawner(home)
    with sync_server(home.socket("api")) as agents:
        server = Live(home, work, agents)
        try:
            yield server
        finally:
            server.close()
