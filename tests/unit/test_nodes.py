"""Nodes: the engine's inventory, and states set by people."""

from dataclasses import replace

from trainmaster.control.observe import set_node_state, take_inventory
from trainmaster.control.world import Batch, World
from trainmaster.model.events import NodeSeen, NodeStateSet
from trainmaster.model.nodes import Node, NodeState

A = Node("a", "local", "lab", "127.0.0.1", 4.0, 2**33)
B = replace(A, name="b")


def recorded(world: World, *inventory: Node) -> list[object]:
    """What taking the inventory puts on record."""
    batch = Batch(world, 1.0)
    take_inventory(batch, inventory)
    return [new.event for new in batch.events]


def said(world: World, state: NodeState, reason: str = "") -> Node:
    """`a` after a person's word."""
    set_node_state(Batch(world, 1.0), "a", NodeStateSet("a", state, "ada", reason))
    return world.nodes["a"]


def test_an_inventory_is_recorded_where_it_says_something_new() -> None:
    world = World()
    assert recorded(world, A, B) == [NodeSeen(A), NodeSeen(B)]
    assert recorded(world, A, B) == []
    larger = replace(A, cpus=8.0)
    assert recorded(world, larger, B) == [NodeSeen(larger)]


def test_a_node_that_its_engine_no_longer_has_is_gone_until_it_is_seen_again() -> None:
    world = World()
    recorded(world, A, B)
    assert recorded(world, B) == [NodeStateSet("a", NodeState.GONE, "the inventory")]
    assert recorded(world, B) == []
    assert recorded(world, A, B) == [NodeSeen(A)]
    assert world.nodes == {"a": A, "b": B}


def test_what_a_person_said_of_a_node_outlives_its_absence() -> None:
    world = World()
    recorded(world, A)
    drained = said(world, NodeState.DRAINED, "new disk")
    assert (recorded(world), recorded(world, A), world.nodes) == ([], [], {"a": drained})


def test_a_state_is_told_with_who_set_it_and_why() -> None:
    world = World()
    recorded(world, A)
    assert said(world, NodeState.DRAINED, "new disk").state_reason == "by ada: new disk"
    assert said(world, NodeState.LOST).state_reason == "by ada"
    assert said(world, NodeState.UP, "it is back") == A
