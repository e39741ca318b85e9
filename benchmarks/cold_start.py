"""`tm run` with no server up, until the first line of the program. Goal: 2 s.

Each turn has a fresh state directory: the server is started, its databases are made, the job is placed and run. Beside
it Ray from nothing, by the two commands its documentation gives: `ray start --head`, `ray job submit`.
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import common
import peer_driver
import peers

GOAL_S = 2.0
RAY_N = 3


def ours(root: Path) -> float:
    """Seconds from typing `tm run` to the program's first line."""
    work = root / "work"
    work.mkdir(parents=True)
    home, mark = common.own_home(root), root / "mark"
    try:
        began_s = time.monotonic()
        tm = [str(Path(sys.executable).with_name("tm")), "run", "--workdir", str(work), "--"]
        program = [sys.executable, "-c", common.MARK, str(mark)]
        done = subprocess.run([*tm, *program], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"tm run exited {done.returncode}:\n{done.stdout}{done.stderr}")
        return common.await_mark(mark) - began_s
    finally:
        common.end_server(home)


def ray(root: Path) -> float:
    """Seconds from typing `ray start` to the program's first line."""
    root.mkdir()
    mark, port = root / "mark", peer_driver.free_port()
    ports = [f"--port={peer_driver.free_port()}", f"--dashboard-port={port}"]
    head = [peers.tool("ray"), "start", "--head", *ports, "--disable-usage-stats", f"--temp-dir={root / 'ray'}"]
    program = [sys.executable, "-c", common.MARK, str(mark)]
    submit = [peers.tool("ray"), "job", "submit", f"--address=http://127.0.0.1:{port}", "--", *program]
    environment = {**os.environ, "PATH": f"{peers.VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    try:
        began_s = time.monotonic()
        for command in (head, submit):
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=root)
            if done.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)} exited {done.returncode}:\n{done.stdout}{done.stderr}")
        return common.await_mark(mark) - began_s
    finally:
        peers.end_all_of(root)


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=8, quick_n=1)
    report = common.Report("cold_start", "No server up, to the first line of the program", options)
    rows: list[list[str]] = []
    with common.scratch() as root:
        samples = []
        for turn in range(options.n):
            common.settle(options.quick)
            samples.append(ours(root / f"ours-{turn}"))
        report.keep("tm run", samples)
        own = common.median(samples)
        rows.append(["`tm run`", str(len(samples)), f"{own:.2f} s", f"{max(samples):.2f} s", common.ratio(own, own)])
        version = peers.installed("ray") if options.peers else None
        title = "`ray start --head`, `ray job submit`"
        if version is None:
            rows.append([title, "not installed" if options.peers else "not asked", "", "", ""])
        else:
            report.versions["ray"] = version
            taken = [ray(root / f"ray-{turn}") for turn in range(min(options.n, RAY_N))]
            report.keep("ray", taken)
            middle = common.median(taken)
            rows.append([title, str(len(taken)), f"{middle:.2f} s", f"{max(taken):.2f} s", common.ratio(middle, own)])
    report.table(["from nothing", "n", "p50", "longest", "against ours"], rows)
    report.goal("`tm run` with no server up", own, GOAL_S, show=lambda value: f"{value:.2f} s")
    report.finish()


if __name__ == "__main__":
    main()
