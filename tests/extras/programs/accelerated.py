"""Trains with Accelerate's own checkpoints: `step_20`, `step_40` … below the output directory, found again by `--resume_from_checkpoint`."""

import argparse
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_train_epochs", type=int, default=8)
    parser.add_argument("--checkpointing_steps", type=int, default=10)
    parser.add_argument("--resume_from_checkpoint", type=str, default=None)
    parser.add_argument("--output_dir", type=str, default="out")
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    accelerator = Accelerator()
    torch.set_num_threads(1)
    set_seed(args.seed)
    inputs = torch.randn(16 * 20, 8, generator=torch.Generator().manual_seed(args.seed))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data, batch_size=16 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    completed_steps = starting_epoch = 0
    resume_step = 0
    if args.resume_from_checkpoint:
        accelerator.print(f"Resumed from checkpoint: {args.resume_from_checkpoint}")
        accelerator.load_state(args.resume_from_checkpoint)
        completed_steps = int(os.path.basename(os.path.normpath(args.resume_from_checkpoint)).removeprefix("step_"))
        starting_epoch, resume_step = divmod(completed_steps, len(loader))

    for epoch in range(starting_epoch, args.num_train_epochs):
        model.train()
        active = accelerator.skip_first_batches(loader, resume_step) if epoch == starting_epoch and resume_step else loader
        for batch, labels in active:
            loss = nn.functional.mse_loss(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            completed_steps += 1
            mean = accelerator.gather(loss.detach()).mean().item()
            accelerator.print(f"epoch {epoch}: step {completed_steps}: train_loss={mean:.8f}", flush=True)
            time.sleep(0.02)  # in place of a larger model
            if completed_steps % args.checkpointing_steps == 0:
                accelerator.save_state(os.path.join(args.output_dir, f"step_{completed_steps}"))
    accelerator.print(f"final loss {mean:.12f} of {accelerator.num_processes} processes")
    accelerator.end_training()


if __name__ == "__main__":
    main()
