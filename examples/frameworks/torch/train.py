"""Your own loop in plain PyTorch, with dropout. The random states are saved, so a resumed run prints the same losses."""

import torch
from safetensors.torch import save_file
from torch import nn

from trainmaster import sdk
from trainmaster.sdk.torch import Saver

STEPS = 60
BATCH = 32


def main() -> None:
    """Learn a fixed linear map under noise."""
    torch.manual_seed(sdk.params().get("seed", 7))
    truth = torch.randn(8, 1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=sdk.params().get("lr", 0.01))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    saver = Saver(every=10, model=model, optimizer=optimizer, schedule=schedule)
    for step in range(saver.restore() + 1, STEPS + 1):
        inputs = torch.randn(BATCH, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if saver.after_step(step, loss=loss.item()):
            return
    save_file(model.state_dict(), "model.safetensors")  # only weights: loading them executes no code
    sdk.artifact("model.safetensors")


if __name__ == "__main__":
    main()
