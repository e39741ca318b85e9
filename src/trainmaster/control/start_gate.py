"""Indexes of the jobs that may not start yet, by what they wait for.

Such a job is `held`, so the scheduler never sees it. It is looked at (`decide.settle_starts`) only when something that it
waits for has happened.

Jobs take turns in groups: those of an array (`%2`), and those of an owner (`max_running`). A job waits for its turn there only
once it waits for nothing else. Jobs with the same groups and limits wait in one line, because they may start at the same
moment: the end of a job looks at the first of each line, and not at jobs that another group keeps waiting. Law: after
`settle_starts`, no job waits for turns that it could have.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

from trainmaster.model.job import Job, State
from trainmaster.model.options.start_conditions import StartConditions

ARRAY, OWNER = "array", "owner"
Group = tuple[str, str]  # ARRAY or OWNER, and its name
Limits = tuple[tuple[Group, int], ...]  # in each of its groups, at most so many jobs are active


@dataclass(slots=True)
class StartGate:
    """Indexes of blocked jobs by what they wait for. `due`: jobs to look at."""

    blocked: dict[str, StartConditions] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=dict)
    begins: list[tuple[float, str]] = field(default_factory=list)  # a heap; may list jobs that are not blocked any more
    active: dict[Group, set[str]] = field(default_factory=dict)
    lines: dict[Limits, list[tuple[int, str]]] = field(default_factory=dict)  # jobs that wait for a turn, as (seq, id) in order
    lines_of: dict[Group, set[Limits]] = field(default_factory=dict)
    in_line: dict[str, Limits] = field(default_factory=dict)
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

    def lacks_turn(self, job: Job) -> bool:
        """Whether a group of a blocked job has as many active jobs as it allows."""
        return self._places(_limits(job)) <= 0

    def wait_for_turn(self, job: Job, waits: bool) -> None:
        """Let a blocked job wait for its turn, or not, as long as it waits for something else."""
        before, now, place = self.in_line.pop(job.id, ()), _limits(job) if waits else (), (job.seq, job.id)
        if now:
            self.in_line[job.id] = now
        if now == before:
            return
        if now:
            insort(self.lines.setdefault(now, []), place)
            for group, _ in now:
                self.lines_of.setdefault(group, set()).add(now)
        if before:
            self._leave(before, place)

    def _leave(self, line: Limits, place: tuple[int, str]) -> None:
        jobs = self.lines[line]
        del jobs[bisect_left(jobs, place)]
        self._pass_on(line)
        if not jobs:
            del self.lines[line]
            for group, _ in line:
                self.lines_of[group].discard(line)
                if not self.lines_of[group]:
                    del self.lines_of[group]

    def _places(self, limits: Limits) -> int:
        """How many more jobs with these limits may become active."""
        return min((limit - len(self.active.get(group, ())) for group, limit in limits), default=1)

    def _block(self, job: Job, conditions: StartConditions) -> None:
        self.blocked[job.id] = conditions
        for one in conditions.after:
            self.dependents.setdefault(one.job, set()).add(job.id)
        if conditions.begin_s is not None:
            heappush(self.begins, (conditions.begin_s, job.id))

    def _unblock(self, job: Job) -> None:
        self.wait_for_turn(job, waits=False)
        for one in self.blocked.pop(job.id).after:
            jobs = self.dependents.get(one.job, set())
            jobs.discard(job.id)
            if not jobs:
                self.dependents.pop(one.job, None)

    def _count(self, group: Group, id: str, active: bool) -> None:
        """Note whether a job of a group is active. The end of one is the turn of the next."""
        if active:
            self.active.setdefault(group, set()).add(id)
        elif id in self.active.get(group, ()):
            self.active[group].remove(id)
            if not self.active[group]:
                del self.active[group]
            for line in self.lines_of.get(group, ()):
                self._pass_on(line)

    def _pass_on(self, line: Limits) -> None:
        """Look at the first jobs of a line, as many as may become active."""
        self.due.update(id for _, id in self.lines[line][: max(0, self._places(line))])


def _limits(job: Job) -> Limits:
    start = job.start or StartConditions()
    limits = (((ARRAY, start.array), start.at_most), ((OWNER, job.owner), start.max_running))
    return tuple((group, limit) for group, limit in limits if limit)
