"""Replays a trace through the production scheduler under a virtual clock, and records every start, stop and end.

Run times come from the trace, and do not depend on the placement. A decision takes effect at once. A job that failed in the
trace goes through the production life cycle and restart policy (`attempt_replay`); all others succeed and use the scheduler
only. A job that can never start does not block the replay: it is left over.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.domains import CHECKPOINT
from trainmaster.scheduling.model.jobs import Past, Run, Task
from trainmaster.scheduling.model.request import width_of
from trainmaster.scheduling.model.snapshot import DEFAULT, Plan
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.moments import beat_s, moments_of, policies
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.simulator.attempt_replay import AttemptReplay, attempt_replays
from trainmaster.simulator.forecast_scores import ForecastScorer
from trainmaster.simulator.sampling import Sampler
from trainmaster.simulator.scheduler import Scheduler
from trainmaster.simulator.trace import Arrival, Trace


@dataclass(frozen=True, slots=True)
class Settings:
    """Assumptions of a replay. `noise` is the standard deviation of a factor on every run time, drawn with `seed`."""

    preemption_cost_s: float = 30.0  # run time repeated after each preemption
    exact: bool = False  # the scheduler knows each job's run time, not only its limit
    noise: float = 0.0
    seed: int = 0
    rules: Cluster = DEFAULT


@dataclass(slots=True)
class History:
    """The result of one job. `run_s` is its run time without the cost of preemptions."""

    submit_s: float
    run_s: float
    width: float  # GPUs, or CPUs if the trace has no GPUs
    project: str
    started_s: float = -1.0
    ended_s: float = -1.0  # below 0: it did not end
    preemptions: int = 0
    restarts: int = 0
    ran_s: float = 0.0  # in all attempts, with repeated work
    lost_s: float = 0.0  # part of it that was repeated after preemptions
    stood_s: float = 0.0  # the longest uninterrupted time in the queue


@dataclass(slots=True)
class _Life:
    """One job of the trace: its result so far, its remaining run time, and its attempts if these are on record."""

    history: History
    left_s: float
    attempts: AttemptReplay | None


@dataclass(slots=True)
class Replay:
    """The replay of one trace under one policy."""

    trace: Trace
    policy: Policy
    settings: Settings = field(default_factory=Settings)
    now_s: float = 0.0
    seconds: float = 0.0  # of real time, forecasts included
    sampler: Sampler | None = None  # takes samples
    scorer: ForecastScorer | None = None  # forecasts starts
    _lives: dict[str, _Life] = field(default_factory=dict)
    _scheduler: Scheduler = field(default_factory=Scheduler)
    _ends: list[tuple[float, int, str, float]] = field(default_factory=list)

    @property
    def histories(self) -> dict[str, History]:
        """The results by job, in order of arrival."""
        return {id: life.history for id, life in self._lives.items()}

    def run(self) -> Mapping[str, History]:
        """Run the whole replay."""
        began_s = time.perf_counter()
        arrivals, jobs = self._arrivals(), self._scheduler
        at, every_s = 0, beat_s(self.policy)
        while at < len(arrivals) or self._ends:
            due = [arrivals[at][0].submit_s] if at < len(arrivals) else []
            due += [self._ends[0][0]] if self._ends else []
            due += [self.now_s + every_s] if every_s is not None and jobs.waiting else []
            due += [jobs.moments[0]] if jobs.moments and jobs.waiting else []
            self.now_s = min(due)
            while jobs.moments and jobs.moments[0] <= self.now_s:
                heappop(jobs.moments)
            if self.sampler is not None and self.sampler.due_s < self.now_s:
                self.sampler.look(self.now_s, jobs.waiting, jobs.running, len(jobs.over))
            while self._ends and self._ends[0][0] <= self.now_s:
                self._end()
            while at < len(arrivals) and arrivals[at][0].submit_s <= self.now_s:
                jobs.queue(arrivals[at][1])
                at += 1
            self._decide()
        self.seconds = time.perf_counter() - began_s
        return self.histories

    def _arrivals(self) -> list[tuple[Arrival, Task]]:
        rng, settings, found = Random(self.settings.seed), self.settings, []
        attempts = attempt_replays(self.trace.arrivals, settings.seed)
        for seq, arrival in enumerate(self.trace.arrivals):
            run_s = arrival.run_s * max(0.01, rng.gauss(1.0, settings.noise)) if settings.noise else arrival.run_s
            estimate_s = run_s if settings.exact else arrival.limit_s
            history = History(arrival.submit_s, run_s, width_of(arrival.ask), arrival.project)
            left_s = arrival.tries[0].ran_s * run_s / (arrival.run_s or 1.0) if arrival.tries else run_s
            self._lives[arrival.id] = _Life(history, left_s, attempts.get(arrival.id))
            found.append((arrival, Task(seq, arrival.id, arrival.kind(settings.rules), arrival.submit_s, 0.0, estimate_s)))
        return found

    def _decide(self) -> None:
        """Decide, and again where that may start more: on what victims leave, or as those that start run for longer."""
        snapshot, jobs = None, self._scheduler
        unsteady = any(not one.trusts for one in policies(self.policy))
        while jobs.waiting:
            snapshot = jobs.snapshot(self.now_s, self.trace.sites, self.settings.rules)
            plan = jobs.decide(snapshot, self.policy)
            self._act(plan)
            if not (plan.handovers or plan.broken or (plan.placements and unsteady)):
                break
        if snapshot is not None:
            news, jobs.news = jobs.news, []
            if self.scorer is not None:
                self.scorer.look(snapshot, news)

    def _act(self, plan: Plan) -> None:
        """Victims are gone at once. The next decision starts the job that they make way for, as the live loop does."""
        jobs = self._scheduler
        for id in plan.broken:
            del jobs.promised[id]
        for placement in plan.placements:
            self._start(placement.job, placement.grant)
        for handover in plan.handovers:
            jobs.promised[handover.job] = handover.grant
            for victim in handover.victims:
                if victim in jobs.running:  # else it makes way for another job already
                    self._evict(victim, victim in handover.shrunk)

    def _start(self, id: str, grant: Grant) -> None:
        keeps_work, life = self.settings.preemption_cost_s < FOREVER, self._lives[id]
        task, history = self._scheduler.start(id, grant, self.now_s, keeps_work), life.history
        if history.started_s < 0:
            history.started_s = self.now_s
        history.stood_s = max(history.stood_s, self.now_s - task.since_s)
        heappush(self._ends, (self.now_s + life.left_s, task.seq, id, self.now_s))
        for moment_s in moments_of(self._scheduler.running[id], self.policy, self.settings.rules):
            heappush(self._scheduler.moments, moment_s)
        if life.attempts is not None:
            life.attempts.placed(self.trace.sites[grant.nodes[0]].name, self.now_s)

    def _evict(self, id: str, shrunk: bool) -> None:
        """Return a job to the queue with its service so far. Repeated work is added to its remaining run time."""
        run, life = self._stop(id), self._lives[id]
        ran_s, cost_s, history = self.now_s - run.placed_s, self.settings.preemption_cost_s, life.history
        again_s = min(cost_s, ran_s)
        life.left_s += again_s - ran_s
        history.preemptions += 1
        history.lost_s += again_s
        if life.attempts is not None:
            life.attempts.evicted(self.now_s)
        task = run.at(self.now_s)
        estimate_s = task.estimate_s
        if estimate_s is not None and self.settings.exact:  # else it is what its time limit leaves, which counts repeated work
            estimate_s += again_s
        since_s, homes = run.again_since_s(self.now_s), self._homes(run)
        task = task._replace(since_s=since_s, running=False, estimate_s=estimate_s, keeps=False, homes=homes)
        if shrunk:
            self._scheduler.promised[id] = run.least
            self._scheduler.queue(task._replace(shrinks=task.shrinks + 1, keeps=True))
        else:
            self._scheduler.queue(task._replace(evictions=task.evictions + 1))

    def _end(self) -> None:
        _, _, id, began_s = heappop(self._ends)
        run = self._scheduler.running.get(id)
        if run is None or run.placed_s != began_s:
            return  # it was stopped before
        self._stop(id)
        life = self._lives[id]
        if life.attempts is not None and self._again(run, life, life.attempts):
            return
        life.history.ended_s = self.now_s
        well = life.attempts is None or life.attempts.well
        self._scheduler.over.append(Past(run.task.seq, run.task.kind, run.task.attained_s + (self.now_s - began_s), well))

    def _stop(self, id: str) -> Run:
        """End or interrupt an attempt."""
        run = self._scheduler.stop(id, self.now_s, self.settings.rules)
        ran_s = self.now_s - run.placed_s
        self._lives[id].history.ran_s += ran_s
        if self.sampler is not None:
            self.sampler.charge(run, ran_s)
        return run

    def _again(self, run: Run, life: _Life, attempts: AttemptReplay) -> bool:
        """Whether another attempt follows. If so, the job returns to the queue."""
        next_s = attempts.ended(self.now_s)
        if next_s is None:
            return False
        task = run.at(self.now_s)
        life.history.restarts += 1
        trace_s = sum(one.ran_s for one in attempts.tries)
        life.left_s = next_s * life.history.run_s / (trace_s or 1.0)
        rests_until_s = attempts.job.not_before_s
        task = task._replace(since_s=self.now_s, not_before_s=rests_until_s, running=False, keeps=False, homes=self._homes(run))
        self._scheduler.queue(task)
        if rests_until_s > self.now_s:
            heappush(self._ends, (rests_until_s, task.seq, task.id, -1.0))  # not an end: only triggers a decision then
        return True

    def _homes(self, run: Run) -> tuple[str, ...]:
        """The nodes near which the next attempt would be."""
        near = run.task.kind.wish.near == CHECKPOINT
        return tuple(self.trace.sites[node].name for node in run.grant.nodes) if near else ()
