"""Who has had how much of what is theirs: the order of fair share."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.share import Member
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.task import Kind, Past, Run, Task

AHEAD_MIN_S, AHEAD_MAX_S, AHEAD_S = 1.0, 3600.0, 60.0  # of service that a start is charged with at once
_RECENT = 64  # ended jobs whose mean run time that is
_MILLI = 1000


class Shares:
    """Service of projects and members now: what is over, what runs, and a little ahead for what runs.

    Charged at the decision: whoever is started counts at once with `ahead_s` of service, so that no burst slips in between two
    looks. Of two projects that one goes first that has had less for its weight, and with it all of its members (Fair Tree).
    """

    def __init__(self, snapshot: Snapshot, held: "Holdings") -> None:
        self.rules, self.now_s = snapshot.rules, snapshot.now_s
        self.ahead_s = ahead_of(snapshot.ended)
        self.service: dict[str | Member, float] = {}
        self._lines: dict[Member, tuple[tuple[str | Member, float], ...]] = {}  # of each member, with the weights
        half_life_s = self.rules.half_life_s
        for member in sorted(snapshot.usage.keys() | held.of.keys()):  # sorted: sums do not depend on who came first
            account = snapshot.usage.get(member)
            service = account.at(self.now_s, half_life_s) if account is not None else 0.0
            self._add(member, service + held.service(member, self.now_s + self.ahead_s))

    def charge(self, task: Task) -> None:
        """A job is started."""
        member = (task.kind.project, task.kind.member)
        self._add(member, _width_milli(task.kind.ask) / _MILLI * self.ahead_s)

    def levels(self, kind: Kind) -> tuple[float, ...]:
        """Service over weight, from the top of the tree down to the member; less goes first."""
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
    """What everybody has had; `kept` is the policy's own memory."""
    holdings = kept.get("holdings")
    if holdings is None:
        holdings = kept["holdings"] = Holdings()
        for run in snapshot.running.values():
            holdings.enter(run)
    return Shares(snapshot, holdings)


class Held(NamedTuple):
    """The live attempts of one member: their widths together, and widths times times of placement. Whole numbers: exact."""

    width_milli: int = 0
    placed: int = 0  # thousandths × milliseconds


class Holdings:
    """Live attempts by member, kept as they come and go."""

    def __init__(self) -> None:
        self.of: dict[Member, Held] = {}

    def fill(self, alike: Mapping[Kind, Sequence[Run]]) -> None:
        """All of these, by their kinds."""
        for kind, runs in alike.items():
            if kind.choices is not None:
                for run in runs:
                    self.enter(run)
                continue
            own = _width_milli(kind.ask)
            self._add(kind, own * len(runs), own * sum([round(run.placed_s * _MILLI) for run in runs]))

    def enter(self, run: Run, sign: int = 1) -> None:
        """An attempt began, or (`sign` -1) is over."""
        own = sign * _width_milli(run.grant.ask)
        self._add(run.task.kind, own, own * round(run.placed_s * _MILLI))

    def _add(self, kind: Kind, own: int, placed: int) -> None:
        before = self.of.get((kind.project, kind.member), Held())
        if before.width_milli + own:
            self.of[kind.project, kind.member] = Held(before.width_milli + own, before.placed + placed)
        else:
            self.of.pop((kind.project, kind.member), None)

    def service(self, member: Member, until_s: float) -> float:
        """What they will have had by then."""
        width, placed = self.of.get(member, Held())
        return (width * round(until_s * _MILLI) - placed) / _MILLI**2


def ahead_of(ended: Any) -> float:
    """What a start is charged with: what jobs have run for lately."""
    recent: list[Past] = ended[-_RECENT:]
    if not recent:
        return AHEAD_S
    return min(AHEAD_MAX_S, max(AHEAD_MIN_S, sum(past.ran_s for past in recent) / len(recent)))


def owner(kind: Kind) -> Hashable:
    """Whose share it is of: all tasks of one owner have the same `claim`."""
    return kind.tier, kind.project, kind.member


def claim(shares: Shares, task: Task) -> Key:
    """Class, then shares."""
    return -task.kind.tier, shares.levels(task.kind)


def rank(task: Task) -> Key:
    """Among those of one owner: the job's own priority, then who came first."""
    return -task.kind.priority, task.since_s


def _width_milli(ask: Ask) -> int:
    """GPUs of a request in thousandths, or CPUs where it asks for none."""
    return ask.gpu_milli or ask.each.cpus * ask.nodes
