"""Nodes, their resources, and what an attempt holds of them."""

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.spec import Counts


class NodeState(StrEnum):
    """Whether new work may be placed on a node."""

    UP = "up"
    DRAINED = "drained"  # finishes its current work, gets nothing new
    LOST = "lost"  # declared by a person: nothing runs there any more
    GONE = "gone"  # no longer in its engine's inventory; current work continues


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of a node. `index` is its number in CUDA_VISIBLE_DEVICES; a stand-in is declared, not real."""

    index: int
    kind: str
    memory_bytes: int = 0
    stand_in: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A machine as its engine describes it."""

    name: str
    engine: str
    host: str
    address: str
    cpus: float
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    pool: str = "default"
    virtual: bool = False  # declared with `tm up --nodes`; several virtual nodes share one machine
    boot_id: str = ""
    state: NodeState = NodeState.UP
    state_reason: str = ""
    counted: Counts = ()  # other resources: disk_bytes, network_bps, accelerators.KIND, custom.NAME


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What an attempt holds of one node."""

    node: str
    address: str
    cpus: float
    memory_bytes: int = 0
    devices: tuple[int, ...] = ()  # indices of `Device`
    counted: Counts = ()  # by the names that its node uses
    gpu_share: float = 0.0  # share of the last of `devices`; 0: all of it

    @property
    def gpus(self) -> float:
        """Number of GPUs, with a share counted as a fraction."""
        return len(self.devices) - 1 + self.gpu_share if self.gpu_share else float(len(self.devices))

    def held(self, device: int) -> float:
        """The held share of one of `devices`."""
        return self.gpu_share if self.gpu_share and device == self.devices[-1] else 1.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes and devices that an attempt holds; `shares[i]` is node index i of the gang."""

    shares: tuple[NodeShare, ...]
    choice: int = 0  # index of the chosen alternative among the spec's choices of GPUs
