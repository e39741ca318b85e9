"""Distributed data parallel training under torchrun; each start goes on from `snapshot.pt` where there is one."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    """A model, its data, and where it is kept between starts."""

    def __init__(self, model: nn.Module, data: DataLoader, optimizer: torch.optim.Optimizer, snapshot_path: str) -> None:
        self.local_rank, self.global_rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
        self.model, self.data, self.optimizer = model, data, optimizer
        self.epochs_run, self.snapshot_path = 0, snapshot_path
        if os.path.exists(snapshot_path):
            snapshot = torch.load(snapshot_path, weights_only=True)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
            if self.global_rank == 0:
                print(f"Resuming training from snapshot at Epoch {self.epochs_run}")
        self.model = DistributedDataParallel(self.model)

    def _run_epoch(self, epoch: int) -> float:
        self.data.sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for inputs, targets in self.data:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(inputs), targets)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            time.sleep(0.03)  # in place of a larger model
        dist.all_reduce(total)
        return total.item() / dist.get_world_size() / len(self.data)

    def _save_snapshot(self, epoch: int) -> None:
        snapshot = {
            "MODEL_STATE": self.model.module.state_dict(), "OPTIMIZER_STATE": self.optimizer.state_dict(), "EPOCHS_RUN": epoch + 1,
        }  # fmt: skip
        torch.save(snapshot, self.snapshot_path)

    def train(self, max_epochs: int, save_every: int) -> None:
        """To the last epoch."""
        loss = float("nan")
        for epoch in range(self.epochs_run, max_epochs):
            loss = self._run_epoch(epoch)
            if self.global_rank == 0:
                print(f"[{self.local_rank}] Epoch {epoch} | loss {loss:.8f}", flush=True)
                if (epoch + 1) % save_every == 0:
                    self._save_snapshot(epoch)
        if self.global_rank == 0:
            print(f"final loss {loss:.12f} of {dist.get_world_size()} processes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--total_epochs", type=int, default=30)
    parser.add_argument("--save_every", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    dist.init_process_group(backend="gloo")
    torch.set_num_threads(1)
    torch.manual_seed(5)
    inputs = torch.randn(512, 12)
    data = TensorDataset(inputs, inputs @ torch.randn(12, 1))
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data, seed=5))
    Trainer(model, loader, torch.optim.Adam(model.parameters(), lr=1e-2), "snapshot.pt").train(args.total_epochs, args.save_every)
    dist.barrier()  # without it, and under load, gloo aborts one run in three at its exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
