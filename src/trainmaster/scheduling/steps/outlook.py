"""What a decision expects of the future: how long jobs hold their nodes, and when running jobs end."""

from bisect import bisect_left, insort
from collections.abc import Sequence

from trainmaster.scheduling.admission.windows import Need, need_of
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Run, Task
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.predictor import Foresight, foresee
from trainmaster.scheduling.preemption.handover import Promises
from trainmaster.scheduling.reservation.timeline import End, Walk
from trainmaster.scheduling.state.cluster import ClusterState


class Outlook:
    """Expected times, under the policy."""

    def __init__(
        self, snapshot: Snapshot, state: ClusterState, promises: Promises, policy: Policy, foresight: Foresight | None
    ) -> None:
        self._snapshot, self._state, self._promises, self._foresight = snapshot, state, promises, foresight
        self._trusts, self._depth = policy.trusts, policy.depth(snapshot)
        self.strict = False  # a job that waits very long has a reservation: only jobs that surely end in time start
        self._ends: Sequence[End] | None = None
        self._begun: list[End] = []  # jobs that started and are not in `_ends` yet
        self._walk: Walk | None = None  # valid while the space is the same

    def holds_s(self, task: Task) -> float:
        """How long a job is expected to hold its nodes."""
        if task.estimate_s is not None and self._trusts:
            return task.estimate_s
        if not self._depth:
            return FOREVER  # without reservations no end matters
        if self._foresight is None:
            self._foresight = foresee(self._snapshot, self._state.learned)
        eager = not (self._trusts or self.strict or task.running)
        return self._foresight.left_s(task) if eager else self._foresight.held_s(task)

    def need(self, task: Task) -> Need:
        """For how long the nodes of a job must stay."""
        return need_of(task.kind, task.estimate_s, self._snapshot.rules)

    def stays_until_s(self, task: Task) -> float:
        """Until when the nodes of a job must stay."""
        return self._snapshot.now_s + self.need(task).least_s

    def begins(self, task: Task, grant: Grant, end_s: float) -> None:
        """A job starts now and is expected to end at `end_s`."""
        self._begun.append((end_s, task.seq, Run(task, grant, self._snapshot.now_s)))

    def moved(self) -> None:
        """The space has changed."""
        self._walk = None

    def walk(self) -> Walk:
        """The walk through the ends of the running jobs, including those just started."""
        if self._walk is not None:
            return self._walk
        if self._ends is None:
            ends, now_s = self._state.running.ends, self._snapshot.now_s
            said = bisect_left(ends, (FOREVER,)) if self._trusts else 0
            rest = [(now_s + self.holds_s(run.at(now_s)), seq, run) for _, seq, run in ends[said:]]
            self._ends = sorted([*ends[:said], *rest]) if rest else ends
        if self._begun:
            ends = [*self._ends]
            for one in self._begun:
                insort(ends, one)
            self._ends, self._begun = ends, []
        self._walk = Walk(self._state.space, self._promises.staying(self._ends), self._depth == 1)
        return self._walk
