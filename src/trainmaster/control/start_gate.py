"""Indexes of the jobs that may not start yet, by what they wait for.

Such a job is `held`, so the scheduler never sees it. It is looked at (`decide.settle_starts`) only when something that it
waits for has happened.

Jobs take turns in groups: those of an array (`%2`), and those of an owner (`max_running`). A job waits for its turn there only
once it waits for nothing else. Law: after `settle_starts`, no job waits for turns that it could have.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from trainmaster.model.job import Job, State
from trainmaster.model.options.start_conditions import StartConditions

ARRAY, OWNER = "array", "owner"
Group = tuple[str, str]  # ARRAY or OWNER, and its name


@dataclass(slots=True)
class Turns:
    """The jobs of a group: those that are active, and by their limit those that wait for a turn, as (seq, id) in order."""

    active: set[str] = field(default_factory=set)
    waiting: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def next(self) -> Iterator[str]:
        """The jobs that may become active now."""
        for limit, jobs in self.waiting.items():
            yield from (id for _, id in jobs[: max(0, limit - len(self.active))])


@dataclass(slots=True)
class StartGate:
    """Indexes of blocked jobs by what they wait for. `due`: jobs to look at."""

    blocked: dict[str, StartConditions] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=dict)
    begins: list[tuple[float, str]] = field(default_factory=list)  # a heap; may list jobs that are not blocked any more
    turns: dict[Group, Turns] = field(default_factory=dict)
    in_turn: dict[str, dict[Group, int]] = field(default_factory=dict)  # where blocked jobs wait, and their limits there
    due: set[str] = field(default_factory=set)

    def update(self, job: Job) -> None:
        """Follow a change of a job."""
        self._count((OWNER, job.owner), job.id, job.counts_as_running)
        if job.start is not None and job.start.at_most:
            self._count((ARRAY, job.start.array), job.id, job.state is not State.HELD and not job.state.ended)
        if job.blocked and job.start is not None:
            self.due.add(job.id)  # also if a person ended a hold: then its reason is that of its submit
            if job.id not in self.blocked:
                self._block(job, job.start)
        elif job.id in self.blocked:
            self._unblock(job)
        if job.state.ended and job.id in self.dependents:
            self.due |= self.dependents.pop(job.id)

    def next_begin_s(self) -> float | None:
        """The earliest time for which a blocked job waits."""
        while self.begins and self.begins[0][1] not in self.blocked:
            heappop(self.begins)
        return self.begins[0][0] if self.begins else None

    def take_due(self, now_s: float) -> set[str]:
        """Jobs to look at."""
        while (begin_s := self.next_begin_s()) is not None and begin_s <= now_s:
            self.due.add(heappop(self.begins)[1])
        due, self.due = self.due, set()
        return due

    def lacking(self, job: Job) -> dict[Group, int]:
        """The groups in which a blocked job has no turn now, and its limits there."""
        start = job.start or StartConditions()
        limits = {(ARRAY, start.array): start.at_most, (OWNER, job.owner): start.max_running}
        taken = {group: len(turns.active) for group in limits if (turns := self.turns.get(group)) is not None}
        return {group: limit for group, limit in limits.items() if limit and taken.get(group, 0) >= limit}

    def wait_for_turn(self, job: Job, groups: dict[Group, int]) -> None:
        """Let a blocked job wait for its turn in these groups; in none as long as it waits for something else."""
        before, place = self.in_turn.pop(job.id, {}), (job.seq, job.id)
        if groups:
            self.in_turn[job.id] = groups
        for group in groups.keys() - before.keys():
            insort(self.turns[group].waiting.setdefault(groups[group], []), place)
        for group in before.keys() - groups.keys():
            jobs = self.turns[group].waiting[before[group]]
            del jobs[bisect_left(jobs, place)]
            if not jobs:
                del self.turns[group].waiting[before[group]]
            self._pass_on(group)

    def _block(self, job: Job, conditions: StartConditions) -> None:
        self.blocked[job.id] = conditions
        for one in conditions.after:
            self.dependents.setdefault(one.job, set()).add(job.id)
        if conditions.begin_s is not None:
            heappush(self.begins, (conditions.begin_s, job.id))

    def _unblock(self, job: Job) -> None:
        self.wait_for_turn(job, {})
        for one in self.blocked.pop(job.id).after:
            jobs = self.dependents.get(one.job, set())
            jobs.discard(job.id)
            if not jobs:
                self.dependents.pop(one.job, None)

    def _count(self, group: Group, id: str, active: bool) -> None:
        """Note whether a job of a group is active. The end of one is the turn of the next."""
        if active:
            self.turns.setdefault(group, Turns()).active.add(id)
        elif group in self.turns and id in self.turns[group].active:
            self.turns[group].active.remove(id)
            self._pass_on(group)

    def _pass_on(self, group: Group) -> None:
        """Look at the next jobs of a group, as many as may become active."""
        turns = self.turns[group]
        self.due.update(turns.next())
        if not turns.active and not turns.waiting:
            del self.turns[group]
