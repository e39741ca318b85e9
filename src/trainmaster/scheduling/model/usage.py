"""What projects and their members have had, with a half-life: the accounts that fair share looks at.

An account is in service: GPU-seconds (CPU-seconds of what asks for no GPU). All accounts fade at the same rate, so that two of
them never change places by time alone. Source of the rule: Slurm's Fair Tree, the multifactor plugin's decay.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from trainmaster.scheduling.model.jobs import Kind, Run
from trainmaster.scheduling.model.request import Ask

Member = tuple[str, str]  # project, user


class Account(NamedTuple):
    """What is left at `at_s` of all service so far."""

    service: float = 0.0
    at_s: float = 0.0

    def at(self, now_s: float, half_life_s: float) -> float:
        """What is left at a later time."""
        return self.service * exp(-log(2) * (now_s - self.at_s) / half_life_s)


Accounts = Mapping[Member, Account]


def charged(account: Account, rate: float, span: tuple[float, float], half_life_s: float) -> Account:
    """The account after service at `rate` (GPUs) over `span` (from, until, in seconds)."""
    began_s, ended_s = span
    at_s = max(ended_s, account.at_s)
    decay = log(2) / half_life_s
    service = rate * (1.0 - exp(-decay * (ended_s - began_s))) / decay
    return Account(account.at(at_s, half_life_s) + service * exp(-decay * (at_s - ended_s)), at_s)


_MILLI = 1000


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


def _width_milli(ask: Ask) -> int:
    """GPUs of a request in thousandths, or CPUs where it asks for none."""
    return ask.gpu_milli or ask.each.cpus * ask.nodes
