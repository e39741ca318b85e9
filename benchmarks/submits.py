"""Durable submits through REST, while control runs its cycles over a queue of 1,000 jobs.

Every submit is one whole request of the Python client, acknowledged only after its fsync. Eight clients are eight
processes on this same machine, which therefore also pays for them. `--quick` only shows that it works.
"""

import multiprocessing as mp
import os
import statistics
import tempfile
import time
from pathlib import Path

import serving

from trainmaster.client.api import Client
from trainmaster.home import Home

QUEUED = 1000
SINGLE_GOAL, BATCH_GOAL = 500.0, 3000.0  # submits per second


def fsync_ms(directory: Path, count: int = 50) -> float:
    """What the disk takes for one durable write of 4 KiB: no submit alone can be faster."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(count):
            began_s = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(times)


def fill_queue(client: Client, count: int) -> None:
    """One job that holds the whole machine, and `count` that wait for it."""
    cpus = sum(node["cpus"] for node in client.nodes())
    client.submit(serving.submission("exec sleep 3600", name="holder", resources={"cpus": cpus}))
    serving.wait_for("the holder to run", lambda: len(client.jobs(state="running")) == 1)
    client.submit_batch([serving.submission("true", name="waiting") for _ in range(count)])
    serving.wait_for("the queue", lambda: len(client.jobs(state="queued", all=1)) == count)


def submit_for(url: str, token: str, until_s: float, latencies: "mp.Queue[list[float]]") -> None:
    """One client process: submit until the time is over."""
    taken = []
    body = serving.submission("python train.py --lr 0.001", name="train", tags={"owner": "team-a"}, params={"lr": 0.001})
    with Client(url, token) as client:
        while time.monotonic() < until_s:
            began_s = time.perf_counter()
            client.submit(body)
            taken.append(time.perf_counter() - began_s)
    latencies.put(taken)


def singles(home: Home, client: Client, clients: int, seconds: float) -> tuple[float, list[float]]:
    """Submits per second of so many clients together, and what each submit took."""
    token = home.token_file.read_text().strip()
    context = mp.get_context("fork")
    latencies: mp.Queue[list[float]] = context.Queue()
    began_s = time.monotonic()
    arguments = (client.url, token, began_s + seconds, latencies)
    processes = [context.Process(target=submit_for, args=arguments) for _ in range(clients)]
    for process in processes:
        process.start()
    taken = [latency for _ in processes for latency in latencies.get()]
    elapsed_s = time.monotonic() - began_s
    for process in processes:
        process.join()
    return len(taken) / elapsed_s, taken


def batches(client: Client, size: int) -> float:
    """Submits per second of one batch."""
    jobs = [serving.submission("python train.py --lr 0.001", name="train", params={"lr": 0.001, "n": n}) for n in range(size)]
    began_s = time.perf_counter()
    client.submit_batch(jobs)
    return size / (time.perf_counter() - began_s)

def main() -> None:
    import sys
    quick = "--quick" in sys.argv
    with serving.fresh_home() as home, serving.start(home) as client:
        fill_queue(client, QUEUED if not quick else 50)
        print("fsync", fsync_ms(home.root))
        for clients in (1, 8):
            rates = []
            for _ in range(3):
                rate, taken = singles(home, client, clients, 3.0)
                rates.append(rate)
                print(clients, rate, statistics.median(taken)*1e3, sorted(taken)[int(.99*len(taken))]*1e3)
        for _ in range(5): print("batch", batches(client, 1000))
if __name__ == "__main__":
    main()
