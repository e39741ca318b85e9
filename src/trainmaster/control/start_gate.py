"""Indexes of the jobs that may not start yet, by what they wait for.

Such a job is `held`, so the scheduler never sees it. It is looked at (`decide.settle_starts`) only when something that it
waits for has happened.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

from trainmaster.model.job import Job, State
from trainmaster.model.options.start_conditions import StartConditions


@dataclass(slots=True)
class Members:
    """The jobs of one array: those that wait for their turn as (seq, id), in order, and those that are active."""

    waiting: list[tuple[int, str]] = field(default_factory=list)
    active: set[str] = field(default_factory=set)


@dataclass(slots=True)
class StartGate:
    """Indexes of blocked jobs by what they wait for. `due`: jobs to look at."""

    blocked: dict[str, StartConditions] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=dict)
    begins: list[tuple[float, str]] = field(default_factory=list)  # a heap; may list jobs that are not blocked any more
    arrays: dict[str, Members] = field(default_factory=dict)
    due: set[str] = field(default_factory=set)

    def update(self, job: Job) -> None:
        """Follow a change of a job."""
        if job.blocked and job.start is not None:
            if job.id not in self.blocked:
                self._block(job, job.start)
        elif job.id in self.blocked:
            self._unblock(job.id)
        if job.start is not None and job.start.at_most:
            self._turn(job, job.start)
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

    def has_turn(self, conditions: StartConditions) -> bool:
        """Whether another job of the array may become active."""
        return not conditions.at_most or len(self.arrays[conditions.array].active) < conditions.at_most

    def _block(self, job: Job, conditions: StartConditions) -> None:
        self.blocked[job.id] = conditions
        self.due.add(job.id)
        for one in conditions.after:
            self.dependents.setdefault(one.job, set()).add(job.id)
        if conditions.begin_s is not None:
            heappush(self.begins, (conditions.begin_s, job.id))

    def _unblock(self, id: str) -> None:
        for one in self.blocked.pop(id).after:
            jobs = self.dependents.get(one.job, set())
            jobs.discard(id)
            if not jobs:
                self.dependents.pop(one.job, None)

    def _turn(self, job: Job, conditions: StartConditions) -> None:
        """Follow a change of a job of an array; the next ones are looked at if fewer are active than may be."""
        members, place = self.arrays.setdefault(conditions.array, Members()), (job.seq, job.id)
        at = bisect_left(members.waiting, place)
        listed = at < len(members.waiting) and members.waiting[at] == place
        if listed and not job.blocked:
            del members.waiting[at]
        elif job.blocked and not listed:
            insort(members.waiting, place)
        if job.state is State.HELD or job.state.ended:
            members.active.discard(job.id)
        else:
            members.active.add(job.id)
        free = max(0, conditions.at_most - len(members.active))
        self.due.update(id for _, id in members.waiting[:free])
        if not members.active and not members.waiting:
            del self.arrays[conditions.array]
