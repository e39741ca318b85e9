"""Machines, what they have, and what an attempt holds of them."""

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.spec import Counts


class NodeState(StrEnum):
    """Whether new work may be placed on a node."""

    UP = "up"
    DRAINED = "drained"  # finishes what it runs, gets nothing new
    LOST = "lost"  # a person says that nothing runs there any more
    GONE = "gone"  # its engine no longer has it; what still runs there goes on


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of a node. `index` is what CUDA_VISIBLE_DEVICES takes; a stand-in is declared, not real."""

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
    virtual: bool = False  # declared with `tm up --nodes`; several of them share one machine
    boot_id: str = ""
    state: NodeState = NodeState.UP
    state_reason: str = ""
    counted: Counts = ()  # what else there is: disk_bytes, network_bps, accelerators.KIND, custom.NAME


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What an attempt holds of one node."""

    node: str
    address: str
    cpus: float
    memory_bytes: int = 0
    devices: tuple[int, ...] = ()  # indices of `Device`
    counted: Counts = ()  # under the names that its node has it by
    gpu_share: float = 0.0  # so much of the last of `devices`; 0: all of it

    @property
    def gpus(self) -> float:
        """GPUs, a part of one counted as such."""
        return len(self.devices) - 1 + self.gpu_share if self.gpu_share else float(len(self.devices))

    def held(self, device: int) -> float:
        """How much of one of `devices` it has."""
        return self.gpu_share if self.gpu_share and device == self.devices[-1] else 1.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes and devices an attempt holds; `shares[i]` is node index i of the gang."""

    shares: tuple[NodeShare, ...]
    choice: int = 0  # which one of the spec's choices of GPUs it is
