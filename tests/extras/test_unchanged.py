"""Programs in the styles that people use, which know nothing of Trainmaster: killed with SIGKILL, resumed, and equal to an undisturbed run.

The programs are in `programs`. How each is submitted is taken from docs/howto/unchanged-programs.md.
"""

import importlib.util
import os
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import ENDED, Tm, agent_of, attempts, kill, server
from waiting import deadline

from trainmaster import live_processes
from trainmaster.wire.names import METRICS_UNREAD
from trainmaster.wire.processes import start_ticks

PROGRAMS = Path(__file__).parent / "programs"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "unchanged-programs.md"
TIMEOUT_S = 180.0
LAG = 20  # steps by which an approximate one may be behind: they are read in turns
pytestmark = [pytest.mark.xdist_group("unchanged"), pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Program:
    """What is killed, and what is true of it afterwards. Its line in the page begins with `# <name>`."""

    name: str
    worker: str  # in the command line of the process that is killed
    went_on: str  # what it prints when it goes on, with the number that it means
    last: int | None  # the step it ends with, as it counts
    victim: str = "worker"  # "agent", "launcher"; "server": both of its processes, and then the worker
    needs: str = "numpy"
    message: str = "rank 0 was killed by SIGKILL"  # in what is said of the end
    tolerance: float = 0.0  # of the final loss, where the program itself is not repeatable
    ahead: int = 0  # its number at going on, less the step of the checkpoint
    like: str = ""  # another one that trains the same when nothing disturbs it
    anew: bool = False  # its printed steps begin at 0 after a restart, so they say nothing about going on
    saved: int = 1  # checkpoints that are committed before it is killed


EPOCH, LIGHTNING = r"snapshot at Epoch (\d+)", r"Restored all states .*step=(\d+)"
ALL = [
    Program("argparse", "argparse_resume.py", r"loaded checkpoint .* \(epoch (\d+)\)", 29, ahead=1),
    Program("RANK", "rank_test.py", r"iter_num of the checkpoint = (\d+)", 120, needs="torch", tolerance=0.1),
    Program(
        "Accelerate", "accelerated.py", r"Resumed from checkpoint: out/step_(\d+)", 160, needs="accelerate",
        message="died with <Signals.SIGKILL: 9>",
    ),
    Program(
        "torchrun", "elastic.py", EPOCH, 29, needs="torch", message="rank 0 exited with code 1: rank 1 under torchrun was killed by SIGKILL",
        ahead=1,
    ),
    Program("torchrun", "elastic.py", EPOCH, 29, victim="launcher", needs="torch", ahead=1),
    Program(
        "torchrun over nodes", "elastic.py", EPOCH, 29, needs="torch", message="under torchrun", ahead=1, like="torchrun",
    ),
    Program("MPI", "mpi.py", r"restarting at iteration (\d+)", 100, needs="mpi4py", message="a rank under mpiexec was killed by SIGKILL"),
    Program("Lightning", "lightning_auto.py", LIGHTNING, 160, needs="lightning", message="rank 0 exited with code 1"),
    Program("Lightning over nodes", "lightning_auto.py", LIGHTNING, 160, needs="lightning", message="was killed by SIGKILL", like="Lightning"),
    Program("Hydra", "hydra_app.py", r"continuing after (\d+)", 120, victim="server", needs="hydra"),
    Program("papermill", "ipykernel", r"went on after epoch (\d+)", 60, needs="papermill", message="DeadKernelError: Kernel died"),
    Program(
        "stages", "stage.py finetune", r"finetune: continuing after (\d+)", 40, victim="agent", message="is gone without an exit record",
        saved=7,
    ),
    Program("XGBoost", "boosted.py", r"continuing from models/model_(\d+)", None, needs="xgboost", anew=True),
]  # fmt: skip


def lines() -> dict[str, list[str]]:
    """What follows `tm run` in the page's blocks, by the comment above it."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for name, line in re.findall(r"^# ([^\n]+)\ntm run (.*?)(?=^# |\Z)", block, re.MULTILINE | re.DOTALL):
            found[name] = shlex.split(line.replace("\\\n", " "))
    return found


LINES = lines()


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two nodes and no GPU."""
    with server(tmp_path_factory.mktemp("unchanged"), "--nodes", "2", "--gpus-per-node", "0") as tm:
        yield tm


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, str]:
    """The job of each program that nothing disturbs, by the program's name."""
    return {}


def submitted(tm: Tm, name: str, suffix: str) -> str:
    job = re.sub(r"\W+", "-", name) + suffix
    return tm.submit("--name", job, "--workdir", str(PROGRAMS), *LINES[name])


def processes(tm: Tm, job: str, word: str) -> list[int]:
    """A job's processes on this home with `word` in their command lines, the youngest last."""
    ours = {f"TRAINMASTER_JOB={job}".encode(), f"TRAINMASTER_SDK={tm.home.root}{os.sep}".encode()}
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in command and all(any(value.startswith(wanted) for value in variables) for wanted in ours):
            found.append(int(entry))
    return sorted(found, key=lambda pid: start_ticks(pid) or 0)  # pids begin again at the highest


def break_it(tm: Tm, program: Program, job: str) -> None:
    """Kill what is to be killed, once a checkpoint is committed."""
    found: list[int] = []

    def ready() -> bool:
        shown = tm.show(job)
        assert shown["state"] not in ENDED, tm.ok("logs", job)
        found[:] = processes(tm, job, program.worker)
        newest = [one for one in shown["checkpoints"] if int(one["id"].split("-")[1]) >= program.saved]  # a retried one has two numbers
        steps = [one["step"] for one in newest if program.last is None or one["step"] is not None]  # one may have none yet
        return bool(found) and any(program.last is None or step <= program.last for step in steps)

    deadline(ready, f"{job} to have a checkpoint", TIMEOUT_S, 0.1)
    if program.victim == "server":
        info = live_processes.running(tm.home)
        assert info is not None
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: neither sees the other go
            for pid in info.pids.values():
                kill(pid, number)
    kill({"agent": agent_of(tm, job), "launcher": found[0]}.get(program.victim, found[-1]))


def over(tm: Tm, job: str) -> dict[str, Any]:
    """The job, once it is over."""
    deadline(lambda: tm.show(job)["state"] in ENDED, f"{job} to end", TIMEOUT_S, 0.3)
    return tm.ended(job)


def final(tm: Tm, job: str) -> tuple[float, str]:
    """The loss that a job printed last, and what it said with it."""
    found = re.findall(r"final loss ([\d.e-]+)([^\n]*)", tm.ok("logs", job))
    assert found, tm.ok("logs", job)
    return float(found[-1][0]), found[-1][1]


def test_every_line_of_the_page_is_tried() -> None:
    assert LINES.keys() == {program.name for program in ALL}


@pytest.mark.parametrize("program", ALL, ids=lambda program: f"{program.name}, {program.victim}")
def test_it_goes_on_and_ends_as_if_nothing_had_happened(tm: Tm, undisturbed: dict[str, str], program: Program) -> None:
    if importlib.util.find_spec(program.needs) is None:
        pytest.skip(f"{program.needs} is not installed")
    family = program.like or program.name
    if family not in undisturbed:
        undisturbed[family] = submitted(tm, family, "-undisturbed")
    job = submitted(tm, program.name, "-killed")
    break_it(tm, program, job)
    shown, log = over(tm, job), tm.ok("logs", job)
    assert attempts(shown, "state") == [("restarted",), ("succeeded",)], log
    first, second = shown["attempts"]
    assert program.message in first["message"]
    assert over(tm, undisturbed[family])["state"] == "succeeded", tm.ok("logs", undisturbed[family])
    wanted, found = final(tm, undisturbed[family]), final(tm, job)
    assert (found[0], found[1]) == (pytest.approx(wanted[0], rel=program.tolerance, abs=0.0), wanted[1])
    went_on = re.search(program.went_on, log)
    assert went_on, log
    loaded = int(went_on[1]) - program.ahead
    if second["resumed_about"]:
        assert loaded - LAG <= second["resumed_from_step"] <= loaded
    else:
        assert second["resumed_from_step"] == loaded
    if not program.anew:
        told = ("its steps fell back", METRICS_UNREAD)  # those of stages do; its agent is killed
        notes = [one for one in shown["notes"] if not one.startswith(told)]
        assert (shown["step"], notes) == (program.last, [])
