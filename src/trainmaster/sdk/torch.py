"""PyTorch: `Saver` saves every object with a `state_dict`, and the random states of each rank; other adapters use `agreed`.

With several ranks, the first local rank of each node writes the shared state, because each node restores what it wrote.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING, Any, Dict, Optional

import torch
import torch.distributed as dist

from trainmaster.sdk.cadence import Order
from trainmaster.sdk.context import rank, world_size
from trainmaster.sdk.saver import BaseSaver

if TYPE_CHECKING:
    from pathlib import Path

_STATE = "state.pt"


class Saver(BaseSaver):
    """Checkpoints of a training loop: `Saver(every=100, model=model, optimizer=optimizer)`.

    `parts`: name -> object with `state_dict` and `load_state_dict`: modules, optimizers, schedulers, scalers, samplers. The
    random states of Python, NumPy and torch are saved too, so that a resumed run draws the same numbers.
    """

    def __init__(self, every: Optional[int] = None, **parts: Any) -> None:
        super().__init__(every)
        self._parts = parts
        self.ranks = "all" if world_size() > 1 else "one"

    def agree(self, order: Order) -> Order:
        """Rank 0's answer, on every rank."""
        return agreed(order)

    def write(self, directory: Path, step: int) -> None:
        """Write the parts once per node and the random states of this rank."""
        if os.environ.get("LOCAL_RANK", "0") == "0":
            states = {name: part.state_dict() for name, part in self._parts.items()}
            torch.save({"step": step, "parts": states}, directory / _STATE)
        save_random(directory)

    def read(self, directory: Path) -> int:
        """Load every part. Raises: KeyError naming a part that was not saved."""
        saved = torch.load(directory / _STATE, map_location="cpu", weights_only=True)
        for name, part in self._parts.items():
            if name not in saved["parts"]:
                raise KeyError(f"the checkpoint holds no part {name!r}, it holds: {', '.join(sorted(saved['parts']))}")
            part.load_state_dict(saved["parts"][name])
        load_random(directory)
        return int(saved["step"])


def agreed(order: Order) -> Order:
    """Rank 0's answer, on every rank: a broadcast of two bytes if there is a process group, otherwise free."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return order
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    answer = torch.tensor(order, dtype=torch.uint8, device=device)
    dist.broadcast(answer, src=0)
    save, stop = answer.tolist()
    return Order(bool(save), bool(stop))


def random_states() -> Dict[str, Any]:
    """The random states of this process, in types that `torch.load(weights_only=True)` can read."""
    states: Dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (name, [int(key) for key in keys], *rest)
    return states


def set_random_states(states: Dict[str, Any]) -> None:
    """Restore the result of `random_states`. GPU states are skipped if the number of GPUs differs."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states.get("cuda", ())) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def save_random(directory: Path) -> None:
    """Write this rank's random states."""
    torch.save(random_states(), directory / f"random-{rank()}.pt")


def load_random(directory: Path) -> None:
    """Restore this rank's random states; a rank without saved ones keeps its own."""
    path = directory / f"random-{rank()}.pt"
    if path.exists():
        set_random_states(torch.load(path, map_location="cpu", weights_only=True))
