"""Trains a small language model; asks `RANK` whether torchrun started it, and `--init_from=resume` goes on from `out/ckpt.pt`."""

import os
import sys
import time
from ast import literal_eval

import torch
from torch import nn
from torch.nn import functional

out_dir, init_from = "out", "scratch"  # or "resume"
eval_interval, log_interval, max_iters = 20, 5, 120
learning_rate, batch_size, block_size, width = 1e-2, 16, 16, 24
backend, device = "nccl", "cpu"
names = [name for name, value in globals().items() if isinstance(value, (int, float, str)) and not name.startswith("_")]
for argument in sys.argv[1:]:
    name, _, text = argument.removeprefix("--").partition("=")
    assert name in names, f"unknown setting: {name}"
    try:
        globals()[name] = literal_eval(text)
    except (SyntaxError, ValueError):
        globals()[name] = text

ddp = int(os.environ.get("RANK", -1)) != -1  # is this one process of many?
if ddp:
    torch.distributed.init_process_group(backend=backend)
    seed_offset = torch.distributed.get_rank()
else:
    seed_offset = 0
master = seed_offset == 0

torch.set_num_threads(1)
torch.manual_seed(1337 + seed_offset)
text = "".join(f"{number} is one more than {number - 1}. " for number in range(1, 400))
letters = sorted(set(text))
tokens = torch.tensor([letters.index(letter) for letter in text])
split = int(0.9 * len(tokens))
parts = {"train": tokens[:split], "val": tokens[split:]}


def get_batch(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of the text, and the same one letter further on."""
    data = parts[part]
    at = torch.randint(len(data) - block_size, (batch_size,))
    return torch.stack([data[i : i + block_size] for i in at]), torch.stack([data[i + 1 : i + 1 + block_size] for i in at])


class Model(nn.Module):
    """The next letter from this one and the average of those before."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(letters), width)
        self.head = nn.Sequential(nn.Linear(2 * width, 4 * width), nn.GELU(), nn.Linear(4 * width, len(letters)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inside = self.letters(x)
        before = inside.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return functional.cross_entropy(self.head(torch.cat([inside, before], 2)).flatten(0, 1), y.flatten())


os.makedirs(out_dir, exist_ok=True)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
iter_num, best_val_loss = 0, 1e9
if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
    print(f"iter_num of the checkpoint = {iter_num}")


@torch.no_grad()
def estimate_loss() -> dict[str, float]:
    """The mean loss over a few batches of either part."""
    model.eval()
    found = {part: torch.stack([model(*get_batch(part)) for _ in range(10)]).mean().item() for part in parts}
    model.train()
    return found


began = time.time()
while True:
    if iter_num % eval_interval == 0 and master:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
            if iter_num > 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num, "best_val_loss": best_val_loss}
                print(f"saving checkpoint to {out_dir}")
                torch.save(state, os.path.join(out_dir, "ckpt.pt"))
    loss = model(*get_batch("train"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    time.sleep(0.02)  # in place of a larger model
    took, began = time.time() - began, time.time()
    if iter_num % log_interval == 0 and master:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {took * 1000:.2f}ms", flush=True)
    iter_num += 1
    if iter_num > max_iters:
        break
print(f"final loss {best_val_loss:.6f}")
if ddp:
    torch.distributed.destroy_process_group()
