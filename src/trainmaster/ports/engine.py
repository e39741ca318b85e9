"""What runs processes: seven verbs, capabilities asked and not discovered by exceptions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, Outcome
from trainmaster.model.nodes import Node


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do."""

    places: bool  # it takes our nodes; otherwise it keeps its own placement
    proves_gone: bool  # it can prove that nothing of an attempt runs any more
    shares_files: bool  # its nodes see the blob store and the submitter's directory as paths


@dataclass(frozen=True, slots=True)
class Submission:
    """What an engine is asked to start: one agent. `job.attempt` is the attempt; the credential is the agent's own."""

    key: AgentKey
    job: Job
    credential: str


class Phase(StrEnum):
    """What an engine knows of a key. Unknown is never terminal."""

    UNKNOWN = "unknown"  # no evidence either way: a probe failed or a launch may still be in flight
    ABSENT = "absent"  # never started here, and (tombstone aside) could still be
    RUNNING = "running"
    LOST = "lost"  # the agent is gone without an exit record; processes of it may remain
    GONE = "gone"  # gone without an exit record, and proof that nothing of it runs
    ENDED = "ended"  # exit record there


@dataclass(frozen=True, slots=True)
class Observation:
    """One key's phase; `outcome` with ENDED. `reports`, in the order they were made, are those that an exit record
    repeats (ENDED), or that a dead agent had kept for a server that did not answer (GONE).
    """

    phase: Phase
    outcome: Outcome | None = None
    reports: tuple[Mapping[str, object], ...] = ()
    evidence: str = ""
    unreadable: bool = False  # UNKNOWN because files or the process table cannot be read: told to people, and looked at again


class Engine(Protocol):
    """Laws: the same key submitted twice starts once, a crash between call and record included; `stop` before
    `submit` makes that submit start nothing; `observe` never raises for one key's sake; a second `stop` is harmless.
    """

    name: str
    capabilities: Capabilities

    def render(self, submission: Submission) -> str:
        """Pure: the exact launch (JSON, sbatch text, manifest) this submission would become."""
        ...

    def submit(self, submission: Submission) -> None:
        """Start the agent of this key unless it was ever started or stopped.

        Raises: trainmaster.errors.OperationError when it cannot be started, with what to do.
        """
        ...

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """One call for N keys; None finds all that is ours and not known to have ended, recorded or not."""
        ...

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """TERM to the whole tree, KILL after `grace_s` (0: at once). Returns without waiting for the end."""
        ...

    def clear(self, job: str, kind: str) -> int:
        """Remove what a job has on the engine's nodes of one kind (`model.storage_kinds.ON_NODES`); how many bytes it was.

        Law: asked only of a job that is over, or for what its next attempts do not need. Again is harmless. Raises: OSError.
        """
        ...

    def logs(self, key: AgentKey) -> str:
        """What the engine and the agent themselves said of the launch; ranks' logs are elsewhere."""
        ...

    def inventory(self) -> list[Node]:
        """The nodes with capacity and health, in a stable order."""
        ...
