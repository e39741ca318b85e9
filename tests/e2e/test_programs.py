"""The five programs nobody may change: trained, killed at a random instant, resumed, as they stand.

They lie beside the checkout and are never copied into it; without them the tests are skipped.
"""

import hashlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from effort import cases

SCRIPTS = Path(__file__).parents[3] / "shared" / "scripts"
pytestmark = pytest.mark.skipif(not (SCRIPTS / "digests").exists(), reason="the unchanged programs are not beside this checkout")
STEP = re.compile(r"""(?:step|epoch)"?:? (\d+)[^\d-].*?(?:loss)"?[:= ]+([\d.e-]+)""")


@dataclass(frozen=True)
class Program:
    """How one program is run, and what is expected of it after a kill."""

    name: str
    arguments: list[str]
    checkpoint: list[str]
    options: list[str] = field(default_factory=list)
    torch: bool = False
    resumes: bool = True


PROGRAMS = [
    Program("numbered.py", ["--steps", "150"], ["--checkpoint", "out/step_*.pkl"]),
    Program(
        "resume_flag.py", ["--epoch-time", "0.15"],
        ["--checkpoint", "checkpoints/last.json", "--resume-arguments", "--resume {path}"],
        ["--metrics-pattern", r"epoch (?P<step>\d+)/\d+ +val_loss=(?P<val_loss>[\d.]+)"],
    ),
    Program("never_loads.py", ["150"], ["--checkpoint", "out/model_*.txt"], resumes=False),
    # One thread, as Trainmaster gives several ranks: more only wait for each other over tensors as small as these.
    Program("overwrite.py", ["--steps", "150"], ["--checkpoint", "ckpt.pt"], ["--env", "OMP_NUM_THREADS=1"], torch=True),
    Program("ddp.py", ["--steps", "100"], ["--checkpoint", "checkpoint/state.pt"], ["--ranks", "2"], torch=True),
]  # fmt: skip


def tm(home: Path, *arguments: str, check: bool = True) -> str:
    """Run `tm` on this home; its standard output."""
    command = [sys.executable, "-m", "trainmaster", *arguments]
    environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def losses(log: str) -> dict[int, str]:
    """The loss printed last for each step."""
    return {int(match[1]): match[2] for match in map(STEP.search, log.splitlines()) if match}


def submit(home: Path, program: Program) -> str:
    options = ["-q", "--workdir", str(SCRIPTS), "--restarts", "3", *program.checkpoint, *program.options]
    return tm(home, "submit", *options, "--", sys.executable, program.name, *program.arguments).strip()


def shown(home: Path, job: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(tm(home, "show", job, "--json"))
    return shown


def kill_a_rank(home: Path, job: str, rng: random.Random) -> bool:
    """`kill -9` one of the job's training processes; False when none runs at this instant."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        mine = any(v.startswith(f"TRAINMASTER_SDK={home}{os.sep}".encode()) for v in environment)
        if mine and f"TRAINMASTER_JOB={job}".encode() in environment:
            pids.append(int(entry.name))
    if not pids:
        return False
    os.kill(rng.choice(pids), signal.SIGKILL)
    return True


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    tm(tmp_path / "home", "down", "--cancel", check=False)


def test_the_programs_are_the_ones_meant() -> None:
    expected = dict(reversed(line.split()) for line in (SCRIPTS / "digests").read_text().splitlines())
    assert {name: hashlib.sha256((SCRIPTS / name).read_bytes()).hexdigest() for name in expected} == expected


@pytest.mark.parametrize("program", cases([one for one in PROGRAMS if one.name != "overwrite.py"], PROGRAMS), ids=lambda program: program.name)
def test_trained_killed_and_resumed(home: Path, program: Program) -> None:
    if program.torch and importlib.util.find_spec("torch") is None:  # found, not loaded: that takes seconds
        pytest.skip("torch is not installed")
    seed = int(os.environ.get("TRAINMASTER_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    rng = random.Random(seed)
    undisturbed, killed = submit(home, program), submit(home, program)
    wait_for(lambda: (shown(home, killed)["step"] or 0) >= rng.randint(1, 5 if "epoch" in program.arguments[0] else 60), seed)
    time.sleep(rng.uniform(0.0, 0.3))
    assert kill_a_rank(home, killed, rng), f"seed {seed}: no rank to kill"
    tm(home, "wait", undisturbed, killed)
    expected, found = losses(tm(home, "logs", undisturbed)), losses(tm(home, "logs", killed))
    assert len(expected) > 10, f"seed {seed}: the reference printed too little"
    assert found == expected, f"seed {seed}: the losses differ"
    told = shown(home, killed)
    assert [a["state"] for a in told["attempts"]] == ["restarted", "succeeded"], f"seed {seed}"
    last = told["attempts"][-1]
    if program.resumes:
        assert (told["notes"], last["resumed_evidence"]) in (([], "seen"), ([], "unknown"), ([], None)), f"seed {seed}: {last}"
    elif last["resumed_from"] is not None:
        assert last["resumed_evidence"] == "against", f"seed {seed}: {last}"
        assert any("its steps began again" in note for note in told["notes"]), f"seed {seed}: nobody was told"


def wait_for(condition: Any, seed: int, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"seed {seed}: waited {timeout_s} s in vain"
        time.sleep(0.05)
