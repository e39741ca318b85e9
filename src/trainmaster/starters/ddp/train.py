"""Trains a small network on all ranks with DistributedDataParallel (NCCL on GPUs, gloo on CPUs). Put your own training here.

Each rank gets the environment of torchrun (RANK, WORLD_SIZE, MASTER_ADDR ...). Rank 0 prints and saves; all ranks load.
"""

import glob
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY = 200, 20


def newest():
    """The newest checkpoint, or None."""
    paths = glob.glob("out/ckpt-*.pt")
    return max(paths, key=lambda path: int(path.rsplit("-", 1)[1].split(".")[0])) if paths else None


def main():
    cuda, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
    ddp = DistributedDataParallel(model, device_ids=[local] if cuda else None)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
    done, path = 0, newest()
    if path is not None:
        saved = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    target = torch.linspace(-1.0, 1.0, 16, device=device)
    for step in range(done + 1, STEPS + 1):
        torch.manual_seed(step * dist.get_world_size() + rank)  # the same data for this rank and step after a restart
        x = torch.randn(64, 16).to(device)
        loss = torch.nn.functional.mse_loss(ddp(x), (x @ target).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}", flush=True)
            if step % EVERY == 0:
                os.makedirs("out", exist_ok=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, f"out/ckpt-{step}.pt.part")
                os.replace(f"out/ckpt-{step}.pt.part", f"out/ckpt-{step}.pt")
    dist.barrier()  # no rank leaves while another still needs the group
    del ddp  # it holds the group, whose threads must end before the interpreter
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
