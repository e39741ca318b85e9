"""The same as `steps.py` with PyTorch: DistributedDataParallel over gloo, a small network, rank 0 saves each tenth step.

`$STEPS_JOURNAL` gets a line for each step of each rank: rank, pid, step, and when it was done on the monotonic clock.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, STEP_S, SAVE_EVERY = 2000, 0.02, 10

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
journal = os.open(os.environ["STEPS_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
saved = sorted(Path("out").glob("ckpt-*.pt"))
first = 0
if saved:
    state = torch.load(saved[-1], weights_only=True)
    model.load_state_dict(state["model"])
    first = state["step"]

for step in range(first + 1, STEPS + 1):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(STEP_S)
    os.write(journal, f"{rank} {os.getpid()} {step} {time.monotonic()!r}\n".encode())
    print(f"step {step} loss {loss.item():.6f}", flush=True)
    if rank == 0 and step % SAVE_EVERY == 0:
        Path("out").mkdir(exist_ok=True)
        part = f"out/.{step}.part"
        torch.save({"model": model.state_dict(), "step": step}, part)
        os.rename(part, f"out/ckpt-{step:06d}.pt")
