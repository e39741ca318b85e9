"""What projects and their members have had, with a half-life: the accounts that fair share looks at.

An account is in service: GPU-seconds (CPU-seconds of what asks for no GPU). All accounts fade at the same rate, so that two of
them never change places by time alone. Source of the rule: Slurm's Fair Tree, the multifactor plugin's decay.
"""

from collections.abc import Mapping
from math import exp, log
from typing import NamedTuple

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
