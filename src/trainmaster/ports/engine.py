"""The engine port: runs processes. Seven verbs; capabilities are declared, not discovered by exceptions."""

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

    places: bool  # it runs attempts on the nodes that we choose; otherwise it places them itself
    proves_gone: bool  # it can prove that nothing of an attempt runs any more
    shares_files: bool  # its nodes see the blob store and the submitter's directory as paths


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to start one agent, of the attempt `job.attempt`. The credential is the agent's own."""

    key: AgentKey
    job: Job
    credential: str


class Phase(StrEnum):
    """What an engine knows about a key. UNKNOWN is never terminal."""

    UNKNOWN = "unknown"  # no evidence either way: a probe failed, or a launch may be in progress
    ABSENT = "absent"  # never started; a start is still possible unless there is a tombstone
    RUNNING = "running"
    LOST = "lost"  # the agent is gone without an exit record; some of its processes may remain
    GONE = "gone"  # no exit record, and proof that none of its processes run
    ENDED = "ended"  # it has an exit record, and its agent is gone or had time to report


@dataclass(frozen=True, slots=True)
class Observation:
    """One key's phase, with an `outcome` if ENDED. `reports`, in order, come from an exit record that repeats them (ENDED),
    or were left on disk by a dead agent that could not reach the server (GONE).
    """

    phase: Phase
    outcome: Outcome | None = None
    reports: tuple[Mapping[str, object], ...] = ()
    evidence: str = ""
    unreadable: bool = False  # UNKNOWN because files or the process table cannot be read: reported to people, and retried


class Engine(Protocol):
    """Laws: a key that is submitted twice starts once, even with a crash between call and record. `stop` before `submit`
    makes that submit start nothing. A problem with one key never makes `observe` raise. `stop` is idempotent.
    """

    name: str
    capabilities: Capabilities

    def render(self, submission: Submission) -> str:
        """Pure: the exact launch description (JSON, sbatch text, manifest) for this submission."""
        ...

    def submit(self, submission: Submission) -> None:
        """Start the agent of this key, unless it was ever started or stopped.

        Raises: trainmaster.errors.OperationError, with a hint, if it cannot be started.
        """
        ...

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """Observe N keys in one call. None: all of our agents that are not known to have ended, recorded or not."""
        ...

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """Send TERM to the whole process tree, and KILL after `grace_s` (0: at once). Returns without waiting."""
        ...

    def clear(self, job: str, kind: str) -> int:
        """Remove a job's bytes of one kind (`model.storage_kinds.ON_NODES`) from the engine's nodes. Returns their number.

        Law: called only for a job that is over, or for bytes that its next attempts do not need. Idempotent. Raises: OSError.
        """
        ...

    def logs(self, key: AgentKey) -> str:
        """Messages of the engine and the agent about the launch; the output of ranks is stored elsewhere."""
        ...

    def inventory(self) -> list[Node]:
        """The nodes with capacity and health, in a stable order."""
        ...
