"""Accounts: the past use of projects and members, with a half-life, for fair share.

An account is in units of service: GPU-seconds, and CPU-seconds of attempts without GPUs times `Cluster.cpu_weight`. All
accounts decay at the same rate, so time alone never changes their order. Source: Slurm's Fair Tree, the decay of the
multifactor plugin.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from trainmaster.scheduling.model.jobs import Kind, Run
from trainmaster.scheduling.model.request import Ask, billed

Member = tuple[str, str]  # project, user


class Account(NamedTuple):
    """The decayed sum at `at_s` of all service so far."""

    service: float = 0.0
    at_s: float = 0.0

    def at(self, now_s: float, half_life_s: float) -> float:
        """The service at a later time."""
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


class Rates(NamedTuple):
    """Sums over the live attempts of one member. Integers, so that sums are exact."""

    gpus: int = 0  # that are charged, in thousandths
    cpus: int = 0
    gpus_placed: int = 0  # each times its time of placement: thousandths × milliseconds
    cpus_placed: int = 0


_NOTHING = Rates()


class Holdings:
    """The live attempts by member, updated as they start and end."""

    def __init__(self) -> None:
        self.of: dict[Member, Rates] = {}

    def fill(self, alike: Mapping[Kind, Sequence[Run]]) -> None:
        """Add all of these attempts, grouped by kind."""
        for kind, runs in alike.items():
            if kind.choices is not None:
                for run in runs:
                    self.enter(run)
                continue
            self._add(kind, kind.ask, len(runs), sum([round(run.placed_s * _MILLI) for run in runs]))

    def enter(self, run: Run, sign: int = 1) -> None:
        """Add an attempt; `sign` -1: remove it."""
        self._add(run.task.kind, run.grant.ask, sign, sign * round(run.placed_s * _MILLI))

    def _add(self, kind: Kind, ask: Ask, count: int, placed_ms: int) -> None:
        (gpus, cpus), before = billed(ask), self.of.get((kind.project, kind.member), _NOTHING)
        after = Rates(
            before.gpus + count * gpus, before.cpus + count * cpus,
            before.gpus_placed + placed_ms * gpus, before.cpus_placed + placed_ms * cpus,
        )  # fmt: skip
        if after.gpus or after.cpus:
            self.of[kind.project, kind.member] = after
        else:
            self.of.pop((kind.project, kind.member), None)

    def service(self, member: Member, until_s: float, cpu_weight: float) -> float:
        """The service of the live attempts of a member until `until_s`."""
        held, until_ms = self.of.get(member, _NOTHING), round(until_s * _MILLI)
        gpus, cpus = held.gpus * until_ms - held.gpus_placed, held.cpus * until_ms - held.cpus_placed
        return (gpus + cpu_weight * cpus) / _MILLI**2
