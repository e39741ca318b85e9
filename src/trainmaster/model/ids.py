"""Ids and how they nest: job `digits-14`, attempt `digits-14.2`, agent `digits-14.2/n0` (the engine's *key*)."""

import re
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9_])?\Z")
_KEY = re.compile(r"(?P<job>.+-[0-9]+)\.(?P<attempt>[0-9]{1,9})/n(?P<node>[0-9]{1,9})\Z")


class AgentKey(NamedTuple):
    """One agent: its job, its attempt (the fence), and its node in the gang (0 is the leader)."""

    job: str
    attempt: int
    node_index: int

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}/n{self.node_index}"

    @classmethod
    def parse(cls, text: str) -> "AgentKey":
        """Raises: ValueError if `text` is not a key."""
        match = _KEY.match(text)
        if match is None:
            raise ValueError(f"{text[:80]!r} is not an agent's key such as 'digits-14.2/n0'")
        return cls(match["job"], int(match["attempt"]), int(match["node"]))


def job_id(experiment: str, number: int) -> str:
    """The id of the `number`-th job of an experiment."""
    return f"{experiment}-{number}"
