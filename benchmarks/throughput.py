"""200 trivial jobs, two at a time, from the submit to the last one's end. Goals: 60/s of `true`, 25/s of `python -c pass`.

Each of ours is a job with everything a job has: queued, placed, recorded in the event log, run by an agent of its own,
its end durable. `xargs -P2` is what the machine itself can do.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import common
import peers

from trainmaster.client.api import Client
from trainmaster.client.origin import origin

JOBS, QUICK_JOBS, AT_A_TIME = 200, 10, 2
FEWER = {"submitit": 40, "ray": 20}  # the slow ones; what is printed is a rate
PROGRAMS = {"true": (["true"], 60.0), "python -c pass": ([sys.executable, "-c", "pass"], 25.0)}
OURS, BARE = "Trainmaster", f"xargs -P{AT_A_TIME}"


def ours(client: Client, directory: Path, argv: Sequence[str], n: int) -> float:
    """Seconds for n jobs, submitted together."""
    place = origin(directory)
    job = {"spec": {"name": "bench", "command": list(argv)}, "origin": place, "code": {"in_place": True}}
    began_s = time.monotonic()
    ids = client.submit_batch([job] * n)
    rows = common.wait_all(client, ids)
    took_s = time.monotonic() - began_s
    if len({row["id"] for row in rows}) != n:
        raise RuntimeError(f"{n} jobs were submitted, {len(rows)} ended")
    return took_s


def bare(argv: Sequence[str], n: int) -> float:
    """Seconds for n runs by xargs."""
    began_s = time.monotonic()
    subprocess.run(["xargs", f"-P{AT_A_TIME}", "-I{}", *argv], input="\n".join(map(str, range(n))), text=True, check=True)
    return time.monotonic() - began_s


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=5, quick_n=1)
    report = common.Report("throughput", "Trivial jobs, two at a time", options)
    wanted = QUICK_JOBS if options.quick else JOBS
    rates: dict[tuple[str, str], float] = {}
    jobs: dict[str, int] = {}

    def measure(name: str, n: int, turns: int, run: Callable[[Sequence[str], int], float]) -> None:
        jobs[name] = n
        run(["true"], 2)  # warm
        for program, (argv, _) in PROGRAMS.items():
            taken = [n / run(argv, n) for _ in range(turns)]
            report.keep(f"{name}, {program}: jobs a second", taken)
            rates[name, program] = common.median(taken)

    with common.scratch() as root:
        (root / "work").mkdir()
        measure(BARE, wanted, options.n, bare)
        with common.server(root, nodes=1, cpus_per_node=float(AT_A_TIME)) as client:
            measure(OURS, wanted, options.n, lambda argv, n: ours(client, root / "work", argv, n))
        for name in ("hyperqueue", "submitit", "ray"):
            version = peers.installed(name) if options.peers else None
            if version is None:
                continue
            report.versions[name] = version
            with peers.Peer(name, root) as peer:
                few = min(wanted, FEWER.get(name, wanted))
                turns = 1 if name in FEWER else options.n
                measure(peers.TITLES[name], few, turns, lambda argv, n, peer=peer: peer.many(n, argv))  # type: ignore[misc]

    rows = []
    for name in (OURS, BARE, *(peers.TITLES[peer] for peer in ("hyperqueue", "submitit", "ray"))):
        if name not in jobs:
            rows.append([name, "not installed" if options.peers else "not asked", *[""] * 2 * len(PROGRAMS)])
            continue
        figures = []
        for program in PROGRAMS:
            rate = rates[name, program]
            figures += [f"{rate:.1f}/s", f"{rate / rates[OURS, program]:.2f}×"]
        rows.append([name, str(jobs[name]), *figures])
    heads = [head for program in PROGRAMS for head in (f"`{program}`", "of ours")]
    report.table(["run by", "jobs", *heads], rows)
    report.say(
        "HyperQueue runs them as the tasks of one job, submitit as functions (for `true`, one that calls it), "
        "Ray as jobs of one CPU."
    )
    for program, (_, limit) in PROGRAMS.items():
        rate = rates[OURS, program]
        report.goal(f"`{program}`", rate, limit, at_least=True, show=lambda value: f"{value:.1f}/s")
    report.finish()


if __name__ == "__main__":
    main()
