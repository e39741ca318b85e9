"""What a start of the agent costs by exec, against a bare interpreter: processor seconds of the whole process. Goal: 2 ×.

The agent's single file as the engine writes it, started as the engine starts it, in a directory where it finds nothing to
do; beside it `python -I -c pass`, in turns. Forked from the spawner (as on the local engine) an agent costs milliseconds:
`start_latency.py` has that.
"""

import os
import resource
import subprocess
import sys

import common

from trainmaster.agent.pack import build

GOAL = 2.0


def spent(command: list[str]) -> float:
    """Processor seconds of a command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=100, quick_n=5)
    report = common.Report("agent_start", "A start of the agent by exec", options)
    with common.scratch() as root:
        archive = root / "agent.pyz"
        build(os.fspath(archive))
        agent = [sys.executable, "-I", "-S", os.fspath(archive), os.fspath(root / "none")]
        bare = [sys.executable, "-I", "-c", "pass"]
        pairs = [(spent(bare), spent(agent)) for _ in range(options.n)]
    bares, agents = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    report.keep("bare interpreter", bares)
    report.keep("agent", agents)
    times = common.median([ours / without for without, ours in pairs])
    both = {"bare": bares, "agent": agents}
    rows = [[who, common.ms(common.median(taken)), common.ms(max(taken))] for who, taken in both.items()]
    report.table(["started", "p50, processor time", "longest"], rows)
    report.goal("agent against a bare interpreter", times, GOAL, show=lambda value: f"{value:.2f} ×")
    report.finish()


if __name__ == "__main__":
    main()
