"""Durable submits through REST, while control runs its cycles over a queue of 1,000 jobs. Goals: 500/s, 3,000/s in a batch.

Every submit is one request of the Python client, acknowledged only after its fsync. The clients are processes of this same
machine, which therefore pays for them too; what they submit joins the queue.
"""

import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import serving

from trainmaster.client.api import Client

QUEUED, QUICK_QUEUED = 1000, 50
BATCH, QUICK_BATCH = 1000, 50
CLIENTS = 8
SECONDS, QUICK_SECONDS = 4.0, 0.2
SPEC: dict[str, Any] = {
    "name": "train",
    "tags": {"owner": "team-a"},
    "params": {"lr": 0.001},
    "checkpoint": {"path": "out/*.pt"},
}


def one() -> dict[str, Any]:
    """A submission as people make them."""
    return serving.submission("python train.py --lr 0.001", **SPEC)


def fsyncs(directory: Path, count: int) -> list[float]:
    """Seconds for one durable write of 4 KiB: no single submit can be faster."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(count):
            began_s = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began_s)
    return taken


def fill_queue(client: Client, count: int) -> None:
    """One job that holds the whole machine, and `count` that wait for it."""
    cpus = sum(node["cpus"] for node in client.nodes())
    client.submit(serving.submission("exec sleep 3600", name="holder", resources={"cpus": cpus}))
    serving.wait_for("the holder to run", lambda: len(client.jobs(state="running")) == 1)
    client.submit_batch([serving.submission("true", name="waiting")] * count)
    serving.wait_for("the queue", lambda: len(client.jobs(state="queued", all=1)) == count)


def submit_for(seconds: float, gate: Any, answers: Any) -> None:
    """One client process: once all are there, submit until the time is over."""
    taken = []
    with Client(start=False) as client:
        client.healthz()
        gate.wait()
        began_s = now_s = time.monotonic()
        while now_s < began_s + seconds:
            client.submit(one())
            before_s, now_s = now_s, time.monotonic()
            taken.append(now_s - before_s)
    answers.put((taken, began_s, now_s))


def together(clients: int, seconds: float) -> tuple[float, list[float]]:
    """Submits per second of so many clients together, and the seconds that each submit took."""
    context = mp.get_context("fork")
    answers, gate = context.Queue(), context.Barrier(clients)
    processes = [context.Process(target=submit_for, args=(seconds, gate, answers)) for _ in range(clients)]
    for process in processes:
        process.start()
    told = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    taken = [latency_s for latencies, _, _ in told for latency_s in latencies]
    elapsed_s = max(ended_s for _, _, ended_s in told) - min(began_s for _, began_s, _ in told)
    return len(taken) / elapsed_s, taken


def batch(client: Client, size: int) -> float:
    """Submits per second of one batch."""
    jobs = [one() for _ in range(size)]
    began_s = time.perf_counter()
    client.submit_batch(jobs)
    return size / (time.perf_counter() - began_s)


def rate(value: float) -> str:
    """Per second, to read."""
    return f"{value:,.0f}/s"


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=5, quick_n=1)
    report = common.Report("submits", "Durable submits over a queue of jobs", options)
    queued, size, seconds = (QUICK_QUEUED, QUICK_BATCH, QUICK_SECONDS) if options.quick else (QUEUED, BATCH, SECONDS)
    rows, rates = [], {}

    def row(words: str, each: list[float], latencies: list[float]) -> None:
        report.keep(f"{words}: submits a second", each)
        report.keep(f"{words}: seconds of each request", latencies)
        p50, p99 = common.median(latencies), common.percentile(latencies, 0.99)
        rows.append([words, rate(common.median(each)), common.ms(p50), common.ms(p99)])
        rates[words] = common.median(each)

    one_client, all_clients, batched = "1 client, one at a time", f"{CLIENTS} clients, one at a time", f"batches of {size:,}"
    with serving.fresh_home() as home, serving.start(home) as client:
        written = fsyncs(home.root, 5 if options.quick else 100)
        fill_queue(client, queued)
        together(1, 0.2)  # warm
        for words, clients in ((one_client, 1), (all_clients, CLIENTS)):
            told = [together(clients, seconds) for _ in range(options.n)]
            row(words, [each for each, _ in told], [latency_s for _, taken in told for latency_s in taken])
        each = [batch(client, size) for _ in range(2 * options.n)]
        row(batched, each, [size / one for one in each])
        left = len(client.jobs(state="queued", all=1))
    report.keep("fsync of 4 KiB: seconds", written)
    report.table(["submits", "median", "p50 of a request", "p99"], rows)
    fsync = common.ms(common.median(written))
    report.say(f"The queue held {queued:,} jobs at first and {left:,} or more at the end. A bare fsync takes {fsync}.")
    report.goal(all_clients, rates[all_clients], 500.0, at_least=True, show=rate)
    report.goal(batched, rates[batched], 3000.0, at_least=True, show=rate)
    report.finish()


if __name__ == "__main__":
    main()
