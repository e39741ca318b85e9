"""What is true in a simulated world, whatever the control plane thinks of it: damaged checkpoints, and which end came first."""

import random
from dataclasses import dataclass, field

from trainmaster.engines.simulated.scripts import End
from trainmaster.model.ids import AgentKey


def full_name(job: str, ref: str) -> str:
    """`owner:checkpoint` of what an attempt of `job` is to resume from, its own or its parent's."""
    return ref if ":" in ref else f"{job}:{ref}"


@dataclass(slots=True)
class Truth:
    """Draws by seed, once for each part of a checkpoint, whether its bytes are damaged."""

    rng: random.Random
    steps: dict[str, int | None] = field(default_factory=dict)  # by full name
    firsts: dict[tuple[str, int], tuple[AgentKey, End]] = field(default_factory=dict)  # by attempt, the first bad end
    asked: set[AgentKey] = field(default_factory=set)  # agents that the engine was told to start, whatever came of it
    _damaged: dict[tuple[str, int], bool] = field(default_factory=dict)

    def damaged(self, name: str, node_index: int, share: float) -> bool:
        """Whether this node finds another digest; `share` is how often, where it was not asked for before."""
        drawn = self.rng.random() < share
        return self._damaged.setdefault((name, node_index), drawn)

    def proven_bad(self, name: str) -> bool:
        """Whether any node has found another digest."""
        return any(bad for (one, _), bad in self._damaged.items() if one == name)

    def ended_badly(self, key: AgentKey, end: End) -> None:
        """Ranks of an agent ended with a failure of their own."""
        known = self.firsts.get((key.job, key.attempt))
        if known is None or end.at_s < known[1].at_s:
            self.firsts[key.job, key.attempt] = (key, end)
