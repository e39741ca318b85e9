"""Two ranks that count steps, without torch: rank 0 saves each tenth, every rank goes on from the newest.

`$STEPS_JOURNAL` gets a line for each step of each rank: rank, pid, step, and when it was done on the monotonic clock.
"""

import json
import os
import time
from pathlib import Path

STEPS, STEP_S, SAVE_EVERY = 2000, 0.02, 10

rank = int(os.environ["RANK"])
journal = os.open(os.environ["STEPS_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
saved = sorted(Path("out").glob("ckpt-*.json"))
first = json.loads(saved[-1].read_text())["step"] if saved else 0

for step in range(first + 1, STEPS + 1):
    time.sleep(STEP_S)
    os.write(journal, f"{rank} {os.getpid()} {step} {time.monotonic()!r}\n".encode())
    print(f"step {step}", flush=True)
    if rank == 0 and step % SAVE_EVERY == 0:
        Path("out").mkdir(exist_ok=True)
        part = Path(f"out/.{step}.part")
        part.write_text(json.dumps({"step": step}))
        part.rename(f"out/ckpt-{step:06d}.json")
