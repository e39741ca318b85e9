"""Accelerate: your own loop, the checkpoint of the accelerator, and batches that were already seen are skipped."""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainmaster.sdk.accelerate import Saver

EPOCHS = 4


def main() -> None:
    """Learn a fixed linear map over four shuffled epochs of fifteen batches."""
    set_seed(7)
    inputs = torch.randn(480, 8)
    data = TensorDataset(inputs, inputs @ torch.randn(8, 1))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    shuffling = DataLoaderConfiguration(use_seedable_sampler=True)  # the order depends only on seed and epoch
    accelerator = Accelerator(dataloader_config=shuffling)
    loader, model, optimizer = accelerator.prepare(
        DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(7)),
        model, torch.optim.AdamW(model.parameters(), lr=0.01),
    )  # fmt: skip
    saver = Saver(accelerator, every=10)
    step = saver.restore()
    for epoch in range(step // len(loader), EPOCHS):
        loader.set_epoch(epoch)
        seen = step % len(loader)
        for batch, wanted in accelerator.skip_first_batches(loader, seen) if seen else loader:
            loss = nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if saver.after_step(step, loss=loss.item()):
                return


if __name__ == "__main__":
    main()
