"""FSDP2 with PyTorch Distributed Checkpoint: each of two ranks (gloo on CPUs) saves its own shards."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trainmaster import sdk
from trainmaster.sdk.dcp import Saver

STEPS = 60
BATCH = 32  # per rank


def train(device: torch.device) -> None:
    """Learn a fixed linear map; each rank draws its own batches."""
    torch.manual_seed(7)
    truth = torch.randn(8, 1).to(device)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    saver = Saver(model, optimizer, every=10)
    torch.manual_seed(100 + sdk.rank())
    for step in range(saver.restore() + 1, STEPS + 1):
        inputs = torch.randn(BATCH, 8).to(device)
        loss = nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach())
        if saver.after_step(step, loss=loss.item() / dist.get_world_size()):
            break


def main() -> None:
    """Train in a process group."""
    cuda = torch.cuda.device_count() >= sdk.world_size()
    if cuda:
        torch.cuda.set_device(sdk.rank())
    dist.init_process_group("nccl" if cuda else "gloo")
    train(torch.device("cuda" if cuda else "cpu"))
    dist.barrier()  # no rank leaves while another one still needs the group
    gc.collect()  # what is left of the model holds the group, whose threads must end before the interpreter does
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
