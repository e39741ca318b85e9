"""One of two ranks is killed: how long until both do a training step again, beyond the program's own start and restore.

That start is measured bare: both ranks started by hand, with the same checkpoint to go on from, until both did a step.
Goal: 500 ms beyond it. Beside it `torchrun --standalone --max-restarts=3` on the same program. The program is one that
sleeps through its steps, and with PyTorch installed also DistributedDataParallel over gloo.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import common
import peer_driver
import peers
import psutil

from trainmaster.client import submission
from trainmaster.client.api import Client

GOAL_S = 0.500
RANKS, FIRST_STEPS, GIVEN_UP_S = 2, 25, 60.0
PROGRAMS = Path(__file__).parent / "programs"
NAMES = {"steps.py": "out/ckpt-*.json", "ddp_steps.py": "out/ckpt-*.pt"}


class StillError(RuntimeError):
    """The ranks do no steps."""


@dataclass(frozen=True)
class Step:
    """One line of the journal."""

    rank: int
    pid: int
    step: int
    done_s: float


def read(journal: Path) -> list[Step]:
    """What the ranks have done so far."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    words = [line.split() for line in lines]
    return [Step(int(rank), int(pid), int(step), float(done_s)) for rank, pid, step, done_s in words]


def both_step(journal: Path, besides: Sequence[int], at_least: int = 0) -> tuple[float, list[Step]]:
    """When both ranks, in processes other than `besides`, have done such a step; and the line of each. Raises: StillError."""
    until_s = time.monotonic() + GIVEN_UP_S
    while time.monotonic() < until_s:
        seen: dict[int, Step] = {}
        for step in read(journal):
            if step.pid not in besides and step.step >= at_least:
                seen.setdefault(step.rank, step)
        if len(seen) == RANKS:
            return max(step.done_s for step in seen.values()), list(seen.values())
        time.sleep(0.005)
    log = journal.with_name("log")
    said = log.read_text()[-3000:] if log.exists() else ""
    raise StillError(f"no step by both ranks within {GIVEN_UP_S:g} s: {read(journal)[-3:]}\n{said}")


def kill_one(journal: Path) -> tuple[float, list[int]]:
    """`kill -9` of rank 1; when, and the pids of the ranks that were."""
    now = {step.rank: step.pid for step in read(journal)}
    killed_s = time.monotonic()
    os.kill(now[1], signal.SIGKILL)
    return killed_s, list(now.values())


def ours(client: Client, name: str, root: Path) -> tuple[float, int]:
    """Seconds from the kill to a step by both ranks of the next attempt; and the step that one began with."""
    journal = root / "journal"
    shutil.copytree(PROGRAMS, root / "work")
    options: submission.Options = {
        "workdir": str(root / "work"), "ranks": RANKS, "cpus": 1, "checkpoint": NAMES[name],
        "env": {"STEPS_JOURNAL": str(journal)},
    }  # fmt: skip
    job = submission.send(client, submission.draft_command([sys.executable, name], options))
    both_step(journal, [], FIRST_STEPS)
    until_s = time.monotonic() + 30
    while not client.job(job)["checkpoints"]:
        if time.monotonic() > until_s:
            raise RuntimeError(f"{job} has no checkpoint")
        time.sleep(0.02)
    killed_s, were = kill_one(journal)
    done_s, lines = both_step(journal, were)
    client.cancel(job)
    client.wait(job)
    return done_s - killed_s, lines[0].step


def torchrun(name: str, root: Path) -> float | None:
    """The same under torchrun; None where it did not come back in time."""
    journal = root / "journal"
    shutil.copytree(PROGRAMS, root / "work")
    options = ["--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=3"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, name]
    with started([command], root, [{}]):
        both_step(journal, [], FIRST_STEPS)
        killed_s, were = kill_one(journal)
        try:
            return both_step(journal, were)[0] - killed_s
        except StillError:
            return None


def bare(name: str, root: Path) -> float:
    """Seconds from a plain start of both ranks, with a checkpoint there, to a step by both."""
    journal, port = root / "journal", str(peer_driver.free_port())
    shutil.copytree(PROGRAMS, root / "work")
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    ranks = [{**place, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"} for rank in range(RANKS)]
    command = [sys.executable, name]
    with started([command] * RANKS, root, ranks):
        _, before = both_step(journal, [], FIRST_STEPS)
    port = str(peer_driver.free_port())
    ranks = [{**rank, "MASTER_PORT": port} for rank in ranks]
    began_s = time.monotonic()
    with started([command] * RANKS, root, ranks):
        return both_step(journal, [step.pid for step in before])[0] - began_s


@contextmanager
def started(commands: Sequence[list[str]], root: Path, environments: Sequence[dict[str, str]]) -> Iterator[None]:
    """Processes in the work directory, gone afterwards with all their children."""
    log = (root / "log").open("a")
    both = {**os.environ, "STEPS_JOURNAL": str(root / "journal"), "PYTHONUNBUFFERED": "1"}
    family = [
        subprocess.Popen(command, cwd=root / "work", env={**both, **own}, stdout=log, stderr=log)
        for command, own in zip(commands, environments, strict=True)
    ]
    log.close()
    try:
        yield
    finally:
        alive = [psutil.Process(head.pid) for head in family if head.poll() is None]
        children = [child for process in alive for child in process.children(recursive=True)]
        for head in family:
            head.kill()
            head.wait()
        peers.end(children)


def measure(report: common.Report, client: Client, name: str, root: Path) -> tuple[list[list[str]], float]:
    """The rows of one program, and what ours takes beyond a bare start."""
    options = report.options
    samples: dict[str, list[float]] = {"bare": [], "Trainmaster": [], "torchrun": []}
    with_torchrun = options.peers and importlib.util.find_spec("torch") is not None
    resumed = []
    bare(name, fresh(root / name))  # its files are in memory from here on
    for turn in range(options.n):
        here = root / f"{name}-{turn}"
        samples["bare"].append(bare(name, fresh(here / "bare")))
        took_s, step = ours(client, name, fresh(here / "ours"))
        samples["Trainmaster"].append(took_s)
        resumed.append(step)
        if with_torchrun:
            back_s = torchrun(name, fresh(here / "torchrun"))
            samples["torchrun"] += [] if back_s is None else [back_s]
    if min(resumed) <= 1:
        raise RuntimeError(f"{name} began again from its first step: {resumed}")
    middle = {who: common.median(taken) for who, taken in samples.items() if taken}
    beyond = {who: value - middle["bare"] for who, value in middle.items()}
    rows = []
    for who, taken in samples.items():
        report.keep(f"{name}, {who}", taken)
        if not taken:
            installed = importlib.util.find_spec("torch") is not None
            missing = f"0 of {options.n}" if with_torchrun else "not asked" if installed else "not installed"
            rows.append([f"{name}: {who}", missing, "", "", "", ""])
        elif who == "bare":
            figures = [common.ms(value) for value in (middle[who], max(taken))]
            rows.append([f"{name}: bare start and restore", str(len(taken)), *figures, "", ""])
        else:
            figures = [common.ms(value) for value in (middle[who], max(taken), beyond[who])]
            count = str(len(taken)) if len(taken) == options.n else f"{len(taken)} of {options.n}"
            rows.append([f"{name}: {who}", count, *figures, common.ratio(beyond[who], beyond["Trainmaster"])])
    low_s, high_s = min(samples["bare"]), max(samples["bare"])
    if high_s - low_s > GOAL_S:
        varied = f"varied from {low_s:.1f} to {high_s:.1f} s here"
        report.say(f"{name}: the bare start itself {varied}; what is beyond it is as rough.")
    return rows, beyond["Trainmaster"]


def fresh(directory: Path) -> Path:
    """Made, with its parents."""
    directory.mkdir(parents=True)
    return directory


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=8, quick_n=1)
    report = common.Report("recovery", "A rank is killed, to the next training step", options)
    torch = importlib.util.find_spec("torch") is not None
    rows: list[list[str]] = []
    beyond: dict[str, float] = {}
    with common.scratch() as root, common.server(root) as client:
        for name in NAMES:
            if name == "ddp_steps.py" and (options.quick or not torch):
                rows.append([f"{name}: all", "not in --quick" if torch else "not installed", "", "", "", ""])
                continue
            more, beyond[name] = measure(report, client, name, root)
            rows += more
    if torch:
        from importlib.metadata import version  # noqa: PLC0415 - torch alone is asked for

        report.versions["torch"] = version("torch")
    report.table(["program, started by", "n", "p50", "longest", "beyond bare", "against ours"], rows)
    report.say(f"\"2 of 3\": in the third, not both ranks did a step again within {GIVEN_UP_S:.0f} s of the kill.")
    for name, value in beyond.items():
        report.goal(f"{name}, kill to the next step, beyond its own start", value, GOAL_S)
    report.finish()


if __name__ == "__main__":
    main()
