"""What events do to nodes: an inventory never undoes what a person said of one."""

from dataclasses import replace

from trainmaster.lifecycle.machine import TransitionError
from trainmaster.model.events import NodeSeen, NodeStateSet
from trainmaster.model.nodes import Node


def apply_node(node: Node | None, event: NodeSeen | NodeStateSet) -> Node:
    """The node after `event`. Raises: TransitionError for a state set on a node nobody has seen."""
    if isinstance(event, NodeSeen):
        return event.node if node is None else replace(event.node, state=node.state, state_reason=node.state_reason)
    if node is None:
        raise TransitionError(f"the state of {event.name} was set before it was seen")
    return replace(node, state=event.state, state_reason=f"{event.by}: {event.reason}" if event.reason else event.by)
