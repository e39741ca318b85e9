"""The control plane killed (-9, both processes) and started again under 100 running jobs and 100,000 finished ones.

Timed from the start to the answer that all of them run and that control has its inventory. Goal: 2 s, and none restarted: the
witnesses are the ranks, whose pids are written down before the kill and looked at afterwards.
"""

import os
import signal
import time
from pathlib import Path

import common
import seeding
import serving

from trainmaster import daemons
from trainmaster.client.api import Client
from trainmaster.home import Home
from trainmaster.wire.processes import start_ticks

JOBS, RUNNING = 100_000, 100
QUICK_JOBS, QUICK_RUNNING = 100, 2
GOAL_S = 2.0


def ranks(witness: Path) -> dict[str, tuple[int, int | None]]:
    """Pid and start time of each job's rank. Raises: RuntimeError when a rank was started twice."""
    found = {}
    for path in sorted(witness.iterdir()):
        lines = path.read_text().split()
        if len(lines) != 1:
            raise RuntimeError(f"{path.name} was started {len(lines)} times")
        found[path.name] = (int(lines[0]), start_ticks(int(lines[0])))
    return found


def kill_both(home: Home) -> None:
    """As the kernel would: no process of the server gets a last word."""
    pids = (home.read_json(home.server_json) or {})["pids"].values()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    serving.wait_for("them to be gone", lambda: all(start_ticks(pid) is None for pid in pids), every_s=0.005)


def adopted(client: Client, running: int) -> bool:
    """Whether control is there and every job runs."""
    return bool(client.healthz()["control"]) and len(client.jobs(state="running", limit=1000)) == running


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=7, quick_n=1)
    jobs, running = (QUICK_JOBS, QUICK_RUNNING) if options.quick else (JOBS, RUNNING)
    report = common.Report("adoption", f"Killed and started again: {running} running jobs, {jobs:,} finished ones", options)
    answered, taken, empty = [], [], []
    for _ in range(options.n):  # what a start costs where there is nothing to adopt
        with serving.fresh_home() as home:
            began_s = time.perf_counter()
            serving.start(home).close()
            empty.append(time.perf_counter() - began_s)
            daemons.stop(home)
    with serving.fresh_home() as home:
        seeding.seed(home, jobs)
        with serving.start(home) as client:
            ids = serving.occupy(client, running, home.root / "witness")
        before = ranks(home.root / "witness")
        for _ in range(options.n):
            kill_both(home)
            began_s = time.perf_counter()
            with serving.start(home) as client:
                answered.append(time.perf_counter() - began_s)
                serving.wait_for("all to be adopted", lambda client=client: adopted(client, running), every_s=0.005)  # type: ignore[misc]
                taken.append(time.perf_counter() - began_s)
        with serving.start(home) as client:
            attempts = [len(client.job(id)["attempts"]) for id in ids]
        if ranks(home.root / "witness") != before or None in {ticks for _, ticks in before.values()}:
            raise SystemExit("a rank is another process than before")
        if set(attempts) != {1} or len(before) != running:
            raise SystemExit(f"a job was restarted: {attempts}")
    rows = []
    for words, samples in (("it is up, nothing to adopt", empty), ("it answers", answered), ("all are adopted", taken)):
        report.keep(f"{words}: seconds", samples)
        middle = common.median(samples)
        rows.append([words, common.ms(middle), common.ms(max(samples)), common.ratio(middle, common.median(empty))])
    report.table(["from the start until", "median", "worst", "of an empty start"], rows)
    report.say(f"After {options.n} kills all {running} ranks are the same processes, and every job is in its first attempt.")
    report.goal("all adopted, median", common.median(taken), GOAL_S)
    report.finish()


if __name__ == "__main__":
    main()
