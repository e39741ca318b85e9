"""`fair-share`: the order by the use of projects and members relative to their weights."""

from collections.abc import Hashable
from typing import Any

from trainmaster.scheduling.model.jobs import Kind, Past, Task
from trainmaster.scheduling.model.request import service_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.usage import Holdings, Member
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.policy import Policy, one_reservation
from trainmaster.scheduling.preemption.victims import ByRight
from trainmaster.scheduling.state.order import Key, Sharing

AHEAD_MIN_S, AHEAD_MAX_S, AHEAD_S = 1.0, 3600.0, 60.0  # seconds of service that a start is charged at once
_RECENT = 64  # ended jobs whose mean run time it is


class Shares:
    """The service of projects and members now: past attempts, running attempts, and `ahead_s` more for running ones.

    A start is charged `ahead_s` of service in the decision itself, so an owner cannot start a burst of jobs at once. Of two
    projects, the one with less service for its weight comes first, and with it all of its members (Fair Tree).
    """

    def __init__(self, snapshot: Snapshot, held: "Holdings") -> None:
        self.rules, self.now_s = snapshot.rules, snapshot.now_s
        self.ahead_s = ahead_of(snapshot.ended)
        self.service: dict[str | Member, float] = {}
        self._lines: dict[Member, tuple[tuple[str | Member, float], ...]] = {}  # its projects and itself, with weights
        half_life_s = self.rules.half_life_s
        for member in sorted(snapshot.usage.keys() | held.of.keys()):  # sorted: sums must not depend on the order
            account = snapshot.usage.get(member)
            service = account.at(self.now_s, half_life_s) if account is not None else 0.0
            self._add(member, service + held.service(member, self.now_s + self.ahead_s, self.rules.cpu_weight))

    def charge(self, task: Task) -> None:
        """Charge the owners of a job that starts."""
        member = (task.kind.project, task.kind.member)
        self._add(member, service_of(task.kind.ask, self.rules.cpu_weight) * self.ahead_s)

    def levels(self, kind: Kind) -> tuple[float, ...]:
        """Service over weight, from the top of the tree down to the member. Less comes first."""
        service = self.service
        return tuple([service.get(one, 0.0) / weight for one, weight in self._line((kind.project, kind.member))])

    def _line(self, member: Member) -> tuple[tuple[str | Member, float], ...]:
        found = self._lines.get(member)
        if found is None:
            line = self.rules.line(member[0])
            own = dict(line[0].members).get(member[1], 1.0)
            found = self._lines[member] = (*((one.name, one.weight) for one in reversed(line)), (member, own))
        return found

    def _add(self, member: Member, service: float) -> None:
        for one, _ in self._line(member):
            self.service[one] = self.service.get(one, 0.0) + service


def shares(snapshot: Snapshot, kept: dict[str, Any]) -> Shares:
    """The service of all owners. `kept` is the memory of the policy."""
    holdings = kept.get("holdings")
    if holdings is None:
        holdings = kept["holdings"] = Holdings()
        for run in snapshot.running.values():
            holdings.enter(run)
    return Shares(snapshot, holdings)


def ahead_of(ended: Any) -> float:
    """What a start is charged: the mean run time of recent jobs, within bounds."""
    recent: list[Past] = ended[-_RECENT:]
    if not recent:
        return AHEAD_S
    return min(AHEAD_MAX_S, max(AHEAD_MIN_S, sum(past.ran_s for past in recent) / len(recent)))


def owner(kind: Kind) -> Hashable:
    """The owner whose share a job uses. All jobs of one owner have the same `claim`."""
    return kind.tier, kind.project, kind.member


def claim(shares: Shares, task: Task) -> Key:
    """The class, then the shares."""
    return -task.kind.tier, shares.levels(task.kind)


def rank(task: Task) -> Key:
    """Among the jobs of one owner: the job's own priority, then the earlier one."""
    return -task.kind.priority, task.since_s


FAIR = Sharing(
    "The class, then the project and user with the least use for their share, then priority and submission.",
    owner, claim, rank, Shares.charge,
)  # fmt: skip
FAIR_SHARE = Policy("fair-share", FAIR, pack, one_reservation, ByRight(), study=shares)
