"""What is free: per node, the capacity less what live attempts hold. Changed in place during one cycle only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.model.nodes import Allocation, Node, NodeShare, NodeState
from trainmaster.model.spec import Counts, Resources

_EPSILON = 1e-9  # CPUs are fractions: 0.1 + 0.2 must fit into 0.3


@dataclass(slots=True)
class Free:
    """What one node has left."""

    node: Node
    cpus: float
    memory_bytes: int
    devices: list[int]  # indices, ascending
    counted: dict[str, float] = field(default_factory=dict)  # what else there is, by name

    def fits(self, ask: Resources) -> bool:
        """Whether one member of the gang fits here now."""
        return (
            self.cpus + _EPSILON >= ask.cpus
            and self.memory_bytes >= (ask.memory_bytes or 0)
            and len(_of_kind(self.node, self.devices, ask)) >= ask.gpus
            and all(self.counted.get(name, 0.0) + _EPSILON >= amount for name, amount in ask.counted)
        )

    def take(self, ask: Resources) -> NodeShare:
        """Give one member's share away."""
        devices = tuple(_of_kind(self.node, self.devices, ask)[: ask.gpus])
        self.cpus -= ask.cpus
        self.memory_bytes -= ask.memory_bytes or 0
        self.devices = [i for i in self.devices if i not in devices]
        self._less(ask.counted)
        return NodeShare(self.node.name, self.node.address, ask.cpus, ask.memory_bytes or 0, devices, ask.counted)

    def without(self, share: NodeShare) -> None:
        """Take out what an attempt holds."""
        self.cpus -= share.cpus
        self.memory_bytes -= share.memory_bytes
        self.devices = [i for i in self.devices if i not in share.devices]
        self._less(share.counted)

    def _less(self, amounts: Counts) -> None:
        for name, amount in amounts:
            self.counted[name] = self.counted.get(name, 0.0) - amount


def free_nodes(nodes: tuple[Node, ...], held: Mapping[str, Allocation]) -> list[Free]:
    """What nodes that may be given work have left, by name. A share on an unknown node frees nothing anywhere."""
    free = {n.name: whole(n) for n in sorted(nodes, key=lambda n: n.name)}
    for allocation in held.values():
        for share in allocation.shares:
            node = free.get(share.node)
            if node is not None:
                node.without(share)
    return [f for f in free.values() if f.node.state is NodeState.UP]


def whole(node: Node) -> Free:
    """A node with nothing on it."""
    return Free(node, node.cpus, node.memory_bytes, [d.index for d in node.devices], dict(node.counted))


def _of_kind(node: Node, free: list[int], ask: Resources) -> list[int]:
    if ask.gpus == 0 or ask.gpu_kind is None:
        return free
    kinds = {d.index: d.kind for d in node.devices}
    return [i for i in free if kinds[i] == ask.gpu_kind]
