"""PyTorch Distributed Checkpoint: each rank writes its shards (FSDP2, DTensor, tensor parallel) into one checkpoint.

Each node restores the files that it wrote. Its ranks also need files of other nodes: the metadata, and tensors that all
ranks share, which rank 0 writes. Ranks send these to each other during a restore, so no shared file system is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from trainmaster.sdk.cadence import Order
from trainmaster.sdk.saver import BaseSaver
from trainmaster.sdk.torch import agreed, load_random, save_random

if TYPE_CHECKING:
    from pathlib import Path

_METADATA = ".metadata"
_FIRST = "__0_"  # prefix of rank 0's files
_PIECE_BYTES = 64 * 1024 * 1024


class Saver(BaseSaver):
    """Sharded checkpoints of a model and its optimizer: `Saver(model, optimizer, every=100)`, on all ranks.

    Create it after the process group. On one node, a resumed job may have another number of ranks. With several nodes it
    needs the same number as before.
    """

    ranks = "all"

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: Optional[int] = None) -> None:
        super().__init__(every)
        self._model = model
        self._optimizer = optimizer

    def agree(self, order: Order) -> Order:
        """Rank 0's answer, on every rank."""
        return agreed(order)

    def write(self, directory: Path, step: int) -> None:
        """Write this rank's shards."""
        planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
        dcp.save(self._state(step), checkpoint_id=str(directory), planner=planner)
        save_random(directory)

    def read(self, directory: Path) -> int:
        """Load this rank's shards, after getting the files that it needs from other nodes."""
        _exchange(directory)
        state = self._state(0)
        dcp.load(state, checkpoint_id=str(directory))
        set_state_dict(self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        load_random(directory)
        return int(state["step"])

    def _state(self, step: int) -> Dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer, "step": step}


def _exchange(directory: Path) -> None:
    """Send the metadata and rank 0's shared tensors to the nodes that lack them."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    own = sorted(path.name for path in directory.iterdir() if path.name == _METADATA or path.name.startswith(_FIRST))
    everyone: List[List[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, own)
    for name in sorted(set().union(*everyone)):
        if all(name in names for names in everyone):
            continue
        sender = next(rank for rank, names in enumerate(everyone) if name in names)
        _send(directory / name, sender, missing=name not in own)
    dist.barrier()


def _send(path: Path, sender: int, missing: bool) -> None:
    """Send one file from a rank to all in pieces. Ranks that lack it write it under a temporary name and rename it."""
    part = path.with_name(f"{path.name}.{dist.get_rank()}.part")
    source = open(path, "rb") if dist.get_rank() == sender else None  # noqa: SIM115  # closed below, open on one rank only
    target = open(part, "wb") if missing else None  # noqa: SIM115
    while True:
        piece = [source.read(_PIECE_BYTES) if source is not None else b""]
        dist.broadcast_object_list(piece, src=sender)
        if not piece[0]:
            break
        if target is not None:
            target.write(piece[0])
    for file in (source, target):
        if file is not None:
            file.close()
    if missing:
        part.replace(path)
