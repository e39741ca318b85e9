"""Builders of model values for tests: complete by default; name only what a test is about."""

from dataclasses import replace
from typing import Any

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Job, NodeRun, State
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.engine import Submission

PATH = "/usr/local/bin:/usr/bin:/bin"


def spec(command: str | tuple[str, ...] = "true", **changes: Any) -> JobSpec:
    """A spec of one rank on one node."""
    return replace(JobSpec(command, name="train", experiment="train"), **changes)


def origin(directory: str = "/project", **changes: Any) -> Origin:
    """Submitted by `ann` from `directory`."""
    return replace(Origin("ann", "laptop", directory, "3.11.7", {"PATH": PATH, "LANG": "C.UTF-8"}), **changes)


def share(node: str = "node0", **changes: Any) -> NodeShare:
    """One CPU of a node."""
    return replace(NodeShare(node, "127.0.0.1", 1.0), **changes)


def attempt(number: int = 1, nodes: tuple[str, ...] = ("node0",), **changes: Any) -> Attempt:
    """A new attempt on these nodes."""
    shares = tuple(share(node) for node in nodes)
    return replace(Attempt(number, Allocation(shares), placed_s=100.0, nodes=tuple(NodeRun() for _ in nodes)), **changes)


def job(command: str | tuple[str, ...] = "true", **changes: Any) -> Job:
    """`train-1`: queued, without an attempt and without a code copy."""
    value = Job("train-1", 1, spec(command), origin(), CodeCopy(), 90.0, State.QUEUED, "waiting to be placed", 90.0)
    return replace(value, **changes)


def placed(value: Job, number: int = 1, nodes: tuple[str, ...] = ("node0",), **changes: Any) -> Job:
    """The job in state `starting`, with an attempt on these nodes."""
    return replace(value, state=State.STARTING, reason="", attempt=attempt(number, nodes, **changes))


def submission(value: Job | None = None, node_index: int = 0, credential: str = "credential") -> Submission:
    """The engine's submission for one node of the job's attempt (placed on `node0` if it has none)."""
    value = value if value is not None else job()
    value = value if value.attempt is not None else placed(value)
    assert value.attempt is not None
    return Submission(AgentKey(value.id, value.attempt.number, node_index), value, credential)
