"""One simulated agent and its ranks: the conditions of its start, and how its ranks end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.engines.simulated.scripts import End, Script
from trainmaster.model.job import Outcome
from trainmaster.ports.engine import Submission


@dataclass(frozen=True, slots=True)
class Start:
    """The conditions at an agent's start. A start that hangs or fails never has ranks."""

    restored: str | None = None
    step: int | None = None
    bad: tuple[str, ...] = ()  # checkpoints with a damaged part on this node
    failed: Outcome | None = None
    hangs: bool = False


@dataclass(slots=True)
class Agent:
    """One agent and its ranks."""

    submission: Submission
    script: Script
    starts_s: float
    start: Start = Start()
    dies_s: float | None = None  # when the agent crashes, if it does
    broken_s: float | None = None  # when its ranks notice that ranks on another node are gone
    begun: bool = False
    agent_alive: bool = True
    ranks_alive: bool = False
    term_s: float | None = None
    kill_s: float | None = None
    outcome: Outcome | None = None
    told: list[Mapping[str, object]] = field(default_factory=list)  # the script's reports, as sent
    sent: int = 0  # number of its last report
    arrived_s: float = 0.0  # when its last report arrives; later reports cannot overtake it

    @property
    def open(self) -> bool:
        """Whether any event of it is still to come."""
        return self.outcome is None and (not self.begun or self.ranks_alive or (self.start.hangs and self.agent_alive))

    @property
    def node(self) -> str:
        """The name of its node."""
        assert self.submission.job.attempt is not None
        return self.submission.job.attempt.allocation.shares[self.submission.key.node_index].node

    @property
    def started(self) -> dict[str, object]:
        """Its report of the start."""
        start = self.start
        read = {} if start.restored is None else {"read": True}
        return {"kind": "started", "restored": start.restored, "step": start.step, "bad": list(start.bad), **read}

    def end(self) -> End:
        """When and how its ranks end, as known now."""
        own = End(self.starts_s + self.script.runs_s, None if self.script.signal else self.script.exit_code, self.script.signal)
        ends = [own]
        if self.broken_s is not None:
            ends.append(End(max(self.broken_s, self.starts_s), 1))
        if self.term_s is not None and self.script.term_s is not None:
            ends.append(End(max(self.term_s, self.starts_s) + self.script.term_s, None, 15, True))
        if self.kill_s is not None:
            ends.append(End(max(self.kill_s, self.starts_s), None, 9, True))
        return min(ends, key=lambda end: end.at_s)
