"""Programs that know nothing of us, killed at any instant: what is committed can always be loaded, and is put back whole."""

import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from effort import cases
from launches import launch, manifest, resume_point

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import restore
from trainmaster.wire.launch import ResumePoint

SCRIPTS = Path(__file__).parents[3] / "shared" / "scripts"

# In slow pieces, so that most instants see a torn file. "over" writes one pickle over itself, "numbered" one per step; a
# "raw" file is of no known format and carries its own digest; "renamed" ones are renamed into place when finished.
PATIENCE_S = 30.0
TORN = """
import hashlib, os, pickle, sys, time
mode = sys.argv[1]
os.makedirs("out", exist_ok=True)
step = 0
while True:
    step += 1
    data = pickle.dumps((step, [step * 0.5] * 3000, b"." * 20000))
    if "raw" in mode:
        data = hashlib.sha256(data).digest() + data
    final = "out/ckpt.bin" if "over" in mode else f"out/step_{step}.bin"
    path = final + ".tmp" if "renamed" in mode else final
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(data), 1 << 12):
            file.write(data[at:at + (1 << 12)])
            time.sleep(0.0008)
    if "renamed" in mode:
        os.replace(path, final)
    time.sleep(0.2 if mode == "raw over" else 0.03 if mode == "over" else 0.006)
"""


def loaded(path: Path, mode: str) -> int:
    """The step of a checkpoint; fails if it is torn."""
    data = path.read_bytes()
    if "raw" in mode:
        assert hashlib.sha256(data[32:]).digest() == data[:32]
        data = data[32:]
    step: int = pickle.loads(data)[0]
    return step


def open_files(pid: int) -> set[tuple[int, int]]:
    """(device, inode) of what a process has open; nothing once it is gone."""
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            status = os.stat(f"/proc/{pid}/fd/{name}")
            found.add((status.st_dev, status.st_ino))
    except OSError:
        return found
    return found


def train(orders: Any, argv: list[str], lives_s: float, enough: int = 1000) -> tuple[list[dict[str, Any]], list[str]]:
    """Run a program with the collector beside it until it has staged enough or lived so long, kill it, look once more.

    What was staged, and what was told. On a busy machine it may take seconds to begin: it lives on until something is staged.
    """
    made, staged, told = Collector(orders), list[dict[str, Any]](), list[str]()
    made.unstored.tell = told.append
    os.makedirs(orders["work"], exist_ok=True)
    made.prime()
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # more only wait for each other over tensors as small as these
    process = subprocess.Popen(argv, cwd=orders["work"], stdout=subprocess.DEVNULL, env=one_thread)
    try:
        end_s = time.monotonic() + lives_s
        last_s = end_s + PATIENCE_S
        while time.monotonic() < (end_s if staged else last_s) and len(staged) < enough and process.poll() is None:
            staged += made.scan(lambda _: None, True, open_files(process.pid))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    staged += made.scan(lambda _: None, False, set())
    made.close()
    return staged, told


@pytest.mark.skipif(sys.platform != "linux", reason="what is open is read from /proc")
@pytest.mark.parametrize("mode", ["over", "numbered", "raw over", "raw numbered", "raw renamed over"])
def test_killed_at_random_what_is_committed_loads(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_FRESH_NS", 2_000_000)
    monkeypatch.setattr(observations, "QUIET_S", 0.1)
    chance = random.Random(mode)
    points: list[ResumePoint] = []
    for attempt in range(1, 5):
        work = tmp_path / f"work{attempt % 2}"
        orders = launch(tmp_path, attempt=attempt, checkpoint_path="out/*.bin", resume=points[::-1], work=str(work))
        restored = restore(orders)
        if points:
            assert (restored.id, restored.bad) == (points[-1]["id"], [])
            assert sum(loaded(path, mode) >= 1 for path in work.glob("out/*.bin")) >= 1
        staged, _ = train(orders, [sys.executable, "-c", TORN, mode], chance.uniform(0.3, 0.7))
        for one in staged:
            listed = manifest(orders["checkpoint_store"], one["id"])
            step = loaded(Path(orders["checkpoint_store"]) / one["id"] / "n0" / listed["files"][0]["path"], mode)
            assert "over" in mode or step == one["step"]
        points += [resume_point(orders["checkpoint_store"], one) for one in staged]
    assert points


CASES = [
    ("numbered.py", ["--step-time", "0.002", "--save-every", "10", "--steps", "100000"], "out/step_*.pkl"),
    ("resume_flag.py", ["--epoch-time", "0.03", "--epochs", "100000"], "checkpoints/*.json"),
    ("never_loads.py", ["100000"], "out/model_*.txt"),
    ("overwrite.py", ["--step-time", "0.002", "--save-every", "10", "--steps", "100000"], "ckpt.pt"),
]


@pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the shared training programs are not beside this repository")
@pytest.mark.parametrize(("script", "arguments", "path"), cases(CASES[:3], CASES))
def test_training_programs_as_people_have_them(tmp_path: Path, script: str, arguments: list[str], path: str) -> None:
    orders = launch(tmp_path, checkpoint_path=path)
    if script == "overwrite.py":
        pytest.importorskip("torch", reason="torch is not installed: a program with torch.save cannot be tried")
    staged, told = train(orders, [sys.executable, str(SCRIPTS / script), *arguments], 60.0, enough=5)
    assert len(staged) >= 5
    assert told == []
    for one in staged:
        listed = manifest(orders["checkpoint_store"], one["id"])
        stored = Path(orders["checkpoint_store"]) / one["id"] / "n0" / listed["files"][0]["path"]
        data = stored.read_bytes()
        if script == "numbered.py":
            assert pickle.loads(data)[0] == one["step"]
        elif script == "resume_flag.py":
            assert json.loads(data)["epoch"] > 0
        elif script == "overwrite.py":
            torch = pytest.importorskip("torch")
            assert torch.load(stored, weights_only=True)["step"] % 10 == 0
        else:
            assert data == str(one["step"]).encode()
