"""Digits with PyTorch DistributedDataParallel: gloo on CPUs, NCCL if every rank has its own GPU.

The program contains no Trainmaster code. It reads its rank from torchrun's variables, saves a checkpoint with torch.save
every few steps, and resumes from the newest checkpoint. The generator of each batch is seeded with the number of the
step, so a resumed run prints exactly the losses of an undisturbed run.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 900
BATCH = 64  # per rank
SAVE_EVERY = 25
SEED = 20
OUT = Path("out")


def build() -> nn.Module:
    """A small convolutional network for 8 x 8 pictures."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def data(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures and labels to train on, pictures and labels to test with: the same split in every run."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(SEED))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order].to(device) / 16
    labels = torch.tensor(digits.target)[order].to(device)
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def newest() -> Path | None:
    """The checkpoint of the highest step, if there is one."""
    return max(OUT.glob("ckpt-*.pt"), key=lambda path: int(path.stem.split("-")[1]), default=None)


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write to another name, then rename: a file under the final name is always complete."""
    part = OUT / f"ckpt-{step}.pt.part"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, part)
    part.rename(OUT / f"ckpt-{step}.pt")


def main() -> None:
    """Train, from the newest checkpoint if there is one."""
    local_rank, local_size = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, alone)
    cuda = torch.cuda.device_count() >= local_size
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS sums in a different order each time
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True, warn_only=True)
    images, labels, test_images, test_labels = data(device)
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    OUT.mkdir(exist_ok=True)
    step = 0
    found = newest()
    if found is not None:
        saved = torch.load(found, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        if rank == 0:
            print(f"going on after step {step} from {found}", flush=True)

    parallel = DistributedDataParallel(model)
    while step < STEPS:
        step += 1
        generator = torch.Generator().manual_seed(SEED * 1_000_003 + step * 1_009 + rank)
        chosen = torch.randint(len(images), (BATCH,), generator=generator).to(device)
        loss = nn.functional.cross_entropy(parallel(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
            if step % SAVE_EVERY == 0:
                save(step, model, optimizer)

    if rank == 0:
        model.eval()
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
        torch.save(model.state_dict(), OUT / "model.pt")
        print(f"accuracy={accuracy:.3f}", flush=True)
    dist.barrier()  # no rank leaves while another one still needs the group
    del parallel  # it holds the group, whose threads must end before the interpreter does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
