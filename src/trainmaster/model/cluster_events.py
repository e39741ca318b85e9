"""Events of the whole cluster: nodes, its configuration, the scheduler's plans. `model.events` has the closed set."""

from dataclasses import dataclass

from trainmaster.model.cluster import Cluster
from trainmaster.model.nodes import Node, NodeState


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An engine's inventory showed a new or changed node (not a job's event)."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeStateSet:
    """A person drained or resumed a node or declared it lost, or its engine no longer has it (not a job's event)."""

    name: str
    state: NodeState
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterConfigured:
    """A person applied a new cluster configuration, which replaces the previous one (not a job's event)."""

    cluster: Cluster
    by: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan of the scheduler changed something (not a job's event). It can be replayed and explained."""

    seen_seq: int  # last event in its snapshot
    placed: tuple[str, ...]  # attempt ids
    depth: int
    policy: str
