"""Memory of the server, all its processes together, with 100,000 finished jobs and 100 running. Goal: 250 MB.

PSS counts a page that several processes share once, divided among them: its sum is what the server takes. RSS counts it in
full for each. The agents, one per running job, are shown beside it and are not the server's.
"""

import os
from pathlib import Path

import common
import psutil
import seeding
import serving

JOBS, RUNNING = 100_000, 100
QUICK_JOBS, QUICK_RUNNING = 100, 2
LISTS = 200  # requests answered before anything is weighed
GOAL_BYTES = 250e6


def rollup(pid: int) -> tuple[int, int]:
    """(PSS, RSS) of a process in bytes."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024
    return found["Pss"], found["Rss"]


def agents(spawner: int) -> list[int]:
    """The processes that the spawner forked and that live on: they say the same command line and are not it."""
    line = psutil.Process(spawner).cmdline()
    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == line and p.pid != spawner]


def megabytes(value: float) -> str:
    """Bytes, to read."""
    return f"{value / 1e6:,.1f} MB"


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=10, quick_n=2)
    jobs, running = (QUICK_JOBS, QUICK_RUNNING) if options.quick else (JOBS, RUNNING)
    report = common.Report("memory", f"Memory of the server: {jobs:,} finished jobs, {running} running", options)
    weighed: dict[str, list[tuple[int, int]]] = {}
    with serving.fresh_home() as home:
        seeding.seed(home, jobs)
        with serving.start(home) as client:
            serving.occupy(client, running, home.root / "witness")
            for n in range(LISTS):
                client.jobs(limit=50, before=jobs - n % jobs)
            pids = serving.server_pids(home)
            beside = agents(pids["spawner"])
            for _ in range(options.n):
                for name, pid in pids.items():
                    weighed.setdefault(name, []).append(rollup(pid))
                client.jobs(limit=50)
                client.nodes()
            of_agents = [rollup(pid) for pid in beside if os.path.exists(f"/proc/{pid}")]
    rows = []
    for name, samples in weighed.items():
        report.keep(f"{name}: PSS, bytes", [pss for pss, _ in samples])
        pss, rss = (common.median([sample[i] for sample in samples]) for i in (0, 1))
        rows.append([name, "1", megabytes(pss), megabytes(rss)])
    totals = [sum(samples[i][0] for samples in weighed.values()) for i in range(options.n)]
    total_rss = sum(common.median([rss for _, rss in samples]) for samples in weighed.values())
    rows.append(["**server**", str(len(weighed)), megabytes(common.median(totals)), megabytes(total_rss)])
    pss, rss = (sum(sample[i] for sample in of_agents) for i in (0, 1))
    rows.append(["agents", str(len(of_agents)), megabytes(pss), megabytes(rss)])
    report.table(["process", "how many", "PSS", "RSS"], rows)
    report.goal("all processes of the server, PSS", common.median(totals), GOAL_BYTES, show=megabytes)
    report.finish()


if __name__ == "__main__":
    main()
