"""Applies events to nodes. An inventory never changes a state that a person has set."""

from dataclasses import replace

from trainmaster.lifecycle.machine import TransitionError
from trainmaster.model.events import NodeSeen, NodeStateSet
from trainmaster.model.nodes import Node, NodeState


def apply_node(node: Node | None, event: NodeSeen | NodeStateSet) -> Node:
    """The node after `event`. Raises: TransitionError for a state set on an unknown node."""
    if isinstance(event, NodeSeen):
        if node is None or node.state is NodeState.GONE:
            return event.node
        return replace(event.node, state=node.state, state_reason=node.state_reason)
    if node is None:
        raise TransitionError(f"the state of {event.name} was set before it was seen")
    return replace(node, state=event.state, state_reason="" if event.state is NodeState.UP else _said(event))


def _said(event: NodeStateSet) -> str:
    """Text to show after the state: `drained by ada: new disk`."""
    return f"by {event.by}" + (f": {event.reason}" if event.reason else "")
