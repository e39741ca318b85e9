"""The demo: train, kill -9 one rank and the whole control plane at half the steps, resume, and compare every loss.

It also shows how a script uses Trainmaster: with the `tm` command and its `--json`, without an import.
Its state is in `.demo/` in this checkout. A successful run removes it.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"step (\d+) loss ([\d.]+)")
ACCURACY = re.compile(r"accuracy=([\d.]+)")
ACCURACY_MIN = 0.95


def fail(reason: str) -> NoReturn:
    """End the demo with the reason of the failure."""
    raise SystemExit(f"demo failed: {reason}")


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n── {text}", flush=True)


class Trainmaster:
    """The installed `tm`, with its own state directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        beside = Path(sys.executable).parent  # `tm`, and the `python` for the training program
        self.environment = {**os.environ, "TRAINMASTER_HOME": str(home), "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
        self.command = shutil.which("tm", path=self.environment["PATH"]) or fail("there is no `tm`; run `make venv` first")

    def run(self, *arguments: str, timeout_s: float = 180, shown: int | None = None) -> None:
        """Run a command and print it with the first `shown` lines of its output; None prints all."""
        print(f"$ tm {' '.join(arguments)}", flush=True)
        output = None if shown is None else subprocess.PIPE
        with subprocess.Popen([self.command, *arguments], env=self.environment, stdout=output, text=True) as process:
            late = threading.Timer(timeout_s, process.kill)
            late.start()
            for number, line in enumerate(process.stdout or ()):
                if shown is not None and number <= shown:
                    print(line.rstrip() if number < shown else "…", flush=True)
        late.cancel()
        if process.returncode == -signal.SIGKILL:
            fail(f"`tm {' '.join(arguments)}` took longer than {timeout_s:g} s")
        if process.returncode != 0:
            fail(f"`tm {' '.join(arguments)}` exited {process.returncode}")

    def read(self, *arguments: str) -> str:
        """The standard output of a command."""
        result = subprocess.run(
            [self.command, *arguments], env=self.environment, timeout=60, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            fail(f"`tm {' '.join(arguments)}` exited {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def show(self, job: str) -> dict[str, Any]:
        """All data of a job."""
        shown: dict[str, Any] = json.loads(self.read("show", job, "--json"))
        return shown


def until(question: Callable[[], Any], what: str, timeout_s: float) -> Any:
    """Poll until the answer is true."""
    end_s = time.monotonic() + timeout_s
    while not (answer := question()):
        if time.monotonic() > end_s:
            fail(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.1)
    return answer


def processes() -> dict[int, tuple[int, set[str]]]:
    """Every readable process: its pid, its parent and its initial environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # it ended, or belongs to another user
            stat = (entry / "stat").read_text()
            state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
            if state not in "ZX":
                environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                found[int(entry.name)] = (int(parent), set(environment))
    return found


def of_home(words: set[str], home: Path) -> bool:
    """Whether the environment belongs to a rank of this home. Other servers may have jobs of the same name."""
    return any(word.startswith(f"TRAINMASTER_SDK={home}{os.sep}") for word in words)


def pid_of_rank(home: Path, job: str, rank: int) -> int:
    """The training process: the process with this job and rank in its environment that has no children."""
    found = {pid: (parent, words) for pid, (parent, words) in processes().items() if of_home(words, home)}
    ours = {pid for pid, (_, words) in found.items() if {f"TRAINMASTER_JOB={job}", f"RANK={rank}"} <= words}
    leaves = ours - {found[pid][0] for pid in ours}
    return min(leaves) if leaves else fail(f"no process of rank {rank} of {job} was found")


def remaining(home: Path) -> list[int]:
    """Processes of this demo's server and jobs that still run."""
    return [
        pid
        for pid, (_, words) in processes().items()
        if f"TRAINMASTER_HOME={home}" in words or of_home(words, home)
    ]


def kill_half_way(tm: Trainmaster, job: str, steps: int) -> None:
    """Wait until half the steps are done, then SIGKILL rank 1, the api and the control process."""
    half = steps // 2 + 7  # between two checkpoints, so that a few steps are repeated

    def reached() -> int | None:
        shown = tm.show(job)
        if shown["state"] in ("succeeded", "failed", "cancelled"):
            fail(f"{job} {shown['state']} before it could be killed: {shown.get('reason')}")
        step = shown.get("step") or 0
        return step if step >= half else None

    step = until(reached, f"step {half} of {job}", timeout_s=120)
    servers = json.loads((tm.home / "server.json").read_text())["pids"]
    victims = {f"rank 1 of {job}": pid_of_rank(tm.home, job, 1), **servers}
    for pid in victims.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not (set(victims.values()) & processes().keys()), "the killed processes to end", timeout_s=10)
    named = ", ".join(f"{name} (pid {pid})" for name, pid in victims.items())
    print(f"step {step} was reported: kill -9 of {named}", flush=True)


def losses(log: str) -> dict[int, str]:
    """The last printed loss of each step."""
    return {int(step): loss for step, loss in STEP.findall(log)}


def compare(reference: dict[int, str], resumed: dict[int, str], steps: int) -> None:
    """Compare every step of both runs, to the last printed digit."""
    wanted = set(range(1, steps + 1))
    for name, found in (("the undisturbed run", reference), ("the killed and resumed run", resumed)):
        if found.keys() != wanted:
            fail(f"{name} printed {len(found)} of {steps} steps; missing {sorted(wanted - found.keys())[:5]}")
    different = [step for step in sorted(wanted) if reference[step] != resumed[step]]
    if different:
        first = different[0]
        fail(f"{len(different)} losses differ, first at step {first}: {reference[first]} and {resumed[first]}")
    print(f"all {steps} losses are equal to those of the undisturbed run")


def demo(tm: Trainmaster, directory: Path) -> None:
    """Run the whole demo."""
    found = re.search(r"^STEPS = (\d+)", (directory / "train.py").read_text(), re.MULTILINE)
    steps = int(found[1]) if found else fail(f"{directory / 'train.py'} does not define its number of steps")
    spec = str((directory / "train.yaml").relative_to(ROOT))

    say("an undisturbed run, as the reference")
    tm.run("run", spec, shown=3)
    reference = json.loads(tm.read("ps", "--json"))[0]["id"]

    say("the same program again; at half the steps, kill -9 one rank and the whole control plane")
    job = tm.read("submit", "-q", spec).strip()
    print(f"$ tm submit -q {spec}\n{job}", flush=True)
    kill_half_way(tm, job, steps)

    say("start the server again; the job resumes by itself")
    tm.run("up")
    tm.run("wait", job)

    say("what happened")
    tm.run("show", job)
    last = tm.show(job)["attempts"][-1]
    if last["resumed_from_step"] is None:
        fail(f"attempt {last['number']} of {job} did not get a checkpoint")
    if last["number"] < 2:
        fail(f"{job} ended in its first attempt: nothing was resumed")
    print(f"\nresumed from step {last['resumed_from_step']}")
    log = tm.read("logs", job)
    compare(losses(tm.read("logs", reference)), losses(log), steps)

    say("stop the server")
    tm.run("down")
    until(lambda: not remaining(tm.home), "every process to end", timeout_s=15)
    print("no process is left")

    accuracies = ACCURACY.findall(log)
    if not accuracies or float(accuracies[-1]) <= ACCURACY_MIN:
        fail(f"accuracy {accuracies[-1:] or 'was never printed'}; more than {ACCURACY_MIN} was expected")
    print(f"\naccuracy={accuracies[-1]}")


def main() -> None:
    """Run one of the two demos."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--quick", action="store_const", const="digits_quick", dest="example", help="plain Python, seconds")
    which.add_argument("--full", action="store_const", const="digits_ddp", dest="example", help="PyTorch DDP, a minute")
    example = parser.parse_args().example
    os.chdir(ROOT)
    home = ROOT / ".demo" / f"{example}-{os.getpid()}"
    home.mkdir(parents=True)
    tm = Trainmaster(home)
    try:
        demo(tm, ROOT / "examples" / example)
    except BaseException:
        # Its output is captured: if our own output goes to a closed pipe, writing there would end the command too early.
        subprocess.run([tm.command, "down", "--cancel"], env=tm.environment, timeout=60, check=False, capture_output=True)
        print(f"\nthe demo's state stays in {home.relative_to(ROOT)} for inspection; its server is stopped", file=sys.stderr)
        raise
    shutil.rmtree(home)
    with contextlib.suppress(OSError):  # another demo's state is there
        home.parent.rmdir()


if __name__ == "__main__":
    main()
