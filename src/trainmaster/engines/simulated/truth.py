"""The true state of a simulated world, independent of the control plane: damaged checkpoints, and which end came first."""

import random
from dataclasses import dataclass, field

from trainmaster.engines.simulated.scripts import End
from trainmaster.model.ids import AgentKey


def full_name(job: str, ref: str) -> str:
    """`owner:checkpoint` of a checkpoint from which an attempt of `job` resumes, its own or its parent's."""
    return ref if ":" in ref else f"{job}:{ref}"


@dataclass(slots=True)
class Truth:
    """What happened. Draws from the seed, once for each part of a checkpoint, whether its bytes are damaged."""

    rng: random.Random
    steps: dict[str, int | None] = field(default_factory=dict)  # full name -> step
    firsts: dict[tuple[str, int], tuple[AgentKey, End]] = field(default_factory=dict)  # attempt -> its first bad end
    starts: dict[AgentKey, int] = field(default_factory=dict)  # how often the ranks of an agent were started
    violations: list[str] = field(default_factory=list)  # states that the control plane must never cause
    asked: set[AgentKey] = field(default_factory=set)  # agents that the engine was told to start, with any result
    _damaged: dict[tuple[str, int], bool] = field(default_factory=dict)

    def damaged(self, name: str, node_index: int, share: float) -> bool:
        """Whether this node finds a wrong digest; `share`: the probability at the first question."""
        drawn = self.rng.random() < share
        return self._damaged.setdefault((name, node_index), drawn)

    def proven_bad(self, name: str) -> bool:
        """Whether any node has found a wrong digest."""
        return any(bad for (one, _), bad in self._damaged.items() if one == name)

    def ended_badly(self, key: AgentKey, end: End) -> None:
        """Record that ranks of an agent failed by themselves."""
        known = self.firsts.get((key.job, key.attempt))
        if known is None or end.at_s < known[1].at_s:
            self.firsts[key.job, key.attempt] = (key, end)
