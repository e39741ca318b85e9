"""The command line against its own server: real processes, real Ctrl-C, a control plane that is killed under it."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import deadline

import trainmaster
from trainmaster import daemons, live_processes
from trainmaster.home import Home

TRAIN = """
import json, os, pathlib, sys, time
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
done = max((json.loads(path.read_text())["step"] for path in out.glob("ck-*.json")), default=0)
for step in range(done + 1, 21):
    print(f"step {step}/20 loss {1 / step:.4f}", flush=True)
    time.sleep(float(os.environ.get("PACE", "0.02")))
    if step % 5 == 0 and os.environ.get("RANK", "0") == "0":
        (out / "tmp").write_text(json.dumps({"step": step}))
        (out / "tmp").rename(out / f"ck-{step}.json")
    if step == 12 and done == 0 and "die" in sys.argv:
        time.sleep(1)
        os.kill(os.getpid(), 9)
if "fail" in sys.argv:
    raise ValueError("boom")
"""
SPEC = r"""
name: toy
command: python train.py
checkpoint: {path: out/ck-*.json}
params: {lr: 0.1, steps: 20}
metrics: {pattern: 'step (?P<step>\d+)/\d+ loss (?P<loss>[\d.]+)', primary: loss}
"""


class Tm:
    """The command line of one home, run in a directory with a training program."""

    def __init__(self, directory: Path) -> None:
        self.home = Home(directory / "home")
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / "train.py").write_text(TRAIN)
        (self.work / "toy.yaml").write_text(SPEC)
        binaries = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.environment = {**os.environ, "TRAINMASTER_HOME": str(self.home.root), "PATH": binaries}
        self.environment.pop("TRAINMASTER_SERVER", None)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output, other words."""
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", *arguments], cwd=self.work, env=self.environment, capture_output=True, text=True,
            timeout=90, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def begin(self, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Begin one and go on."""
        return subprocess.Popen(
            [sys.executable, "-m", "trainmaster", *arguments], cwd=self.work, env=self.environment, stdout=subprocess.PIPE,
            stderr=stderr, text=True,
        )  # fmt: skip

    def await_running(self, id: str) -> None:
        """Until that job runs."""
        deadline(lambda: any((job["id"], job["state"]) == (id, "running") for job in self.json("ps")), f"{id} to run", 30)

    def json(self, *arguments: str) -> Any:
        """What one answers in JSON."""
        code, out, said = self(*arguments, "--json")
        assert code == 0, said
        return json.loads(out)


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A home without a server; whatever starts one, it is gone afterwards."""
    tm = Tm(tmp_path_factory.mktemp("cli"))
    yield tm
    tm("down", "--cancel")
    daemons.stop(tm.home)


def test_the_first_run_starts_a_server_and_says_so(tm: Tm) -> None:
    code, out, said = tm("run", "toy.yaml", "--add-param", "lr=3e-4", "--tag", "owner=ada")
    assert (code, out.splitlines()) == (0, [f"step {step}/20 loss {1 / step:.4f}" for step in range(1, 21)])
    assert said.splitlines()[0].startswith("started a server on this machine: http://127.0.0.1:")
    assert said.splitlines()[-1].startswith("toy-1 succeeded after ")
    assert said.splitlines()[-1].endswith("(step 20, loss 0.05); next: tm show toy-1")
    shown = tm.json("show", "toy-1")
    assert (shown["spec"]["params"], shown["tags"]) == ({"lr": 3e-4, "steps": 20}, {"owner": "ada"})
    assert [job["id"] for job in tm.json("ps")] == ["toy-1"]


def test_a_restart_is_told_in_one_line_and_the_output_goes_on(tm: Tm) -> None:
    code, out, said = tm("run", "toy.yaml", "--name", "dies", "--experiment", "dies", "--json", "-q")
    assert code == 0
    code, out, said = tm("run", "--name", "dying", "--checkpoint", "out/ck-*.json", "--", "python", "train.py", "die")
    lines = [f"step {step}/20 loss {1 / step:.4f}" for step in (*range(1, 13), *range(11, 21))]
    assert (code, out.splitlines()) == (0, lines)
    told = [line for line in said.splitlines() if line.startswith("attempt")]
    assert told == [
        "attempt 1 ended: rank 0 was killed by SIGKILL, not by us; restarting, given step 10",
        "attempt 2 resumed from step 10: its first step was 11",
    ]
    drawn = tm("show", "dying-1")[1]
    assert "resumed from step 10" in drawn
    assert max(len(line) for line in drawn.splitlines() if str(tm.home.root) not in line and "code " not in line) <= 80


def test_a_failed_job_is_exit_code_ten(tm: Tm) -> None:
    code, _, said = tm("run", "--restarts", "0", "--name", "bad", "--", "python train.py fail")
    assert (code, "bad-1 failed after " in said, said.endswith("next: tm show bad-1\n")) == (10, True, True)
    assert "  | ValueError: boom" in tm("show", "@last-failed")[1]
    assert tm("wait", "bad-1", "toy-1", "-q")[:2] == (10, "bad-1\ntoy-1\n")


def test_streams_of_json_are_lines(tm: Tm) -> None:
    code, out, said = tm("run", "--json", "--name", "lines", "--", "python train.py")
    told = [json.loads(line) for line in out.splitlines()]
    assert (code, said, told[0], told[-1]["state"]) == (0, "", {"id": "lines-1"}, "succeeded")
    assert "".join(one["text"] for one in told[1:-1]).count("step") == 20


def test_ctrl_c_detaches(tm: Tm) -> None:
    process = tm.begin("run", "--name", "long", "--", "sleep", "60")
    tm.await_running("long-1")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "detached: long-1 keeps running; follow it: tm logs -f long-1   cancel it: tm cancel long-1"
    assert tm.json("show", "long-1")["state"] == "running"
    assert tm("wait", "long-1", "--timeout", "0.1")[0] == 8
    assert tm("cancel", "long-1")[:2] == (0, "long-1 is being cancelled\n")
    assert tm("wait", "long-1")[0] == 10


def test_held_released_and_quiet(tm: Tm) -> None:
    assert tm("submit", "--hold", "-q", "--name", "held", "--", "python", "train.py")[:2] == (0, "held-1\n")
    assert tm.json("show", "held-1")["state"] == "held"
    assert tm("release", "held")[0] == 0
    assert tm("wait", "held")[0] == 0


def test_artifacts_are_listed_and_fetched(tm: Tm) -> None:
    assert tm("run", "--artifact", "out/ck-20.json", "--name", "keeps", "--", "python train.py")[0] == 0
    assert [one["path"] for one in tm.json("get", "keeps-1")] == ["out/ck-20.json"]
    assert tm("get", "keeps-1", "out/ck-20.json", "-o", "-")[:2] == (0, '{"step": 20}')


def test_progress_on_a_terminal(tm: Tm) -> None:
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        while data := os.read(ours, 4096):
            shown.extend(data)

    reader = threading.Thread(target=read, daemon=True)
    process = tm.begin("run", "toy.yaml", "--env", "PACE=0.15", stderr=theirs)
    reader.start()
    assert (process.wait(60), process.stdout is not None) == (0, True)
    deadline(lambda: b"next: tm show" in shown, "the last line")
    lines = shown.decode().replace("\x1b[K", "").split("\r")
    assert any(line.startswith("running · ") and "/20 · " in line and "loss" in line and line.endswith(" left") for line in lines)


def test_python_submits_the_same_job(tm: Tm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in tm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tm.work)
    handle = trainmaster.submit("python train.py", name="same", ranks=2, checkpoint="out/ck-*.json", params={"lr": 0.1})
    assert handle.wait(60)["state"] == "succeeded"
    assert handle.logs(rank=0).count("step") == 20
    assert tm("run", "--name", "same", "--ranks", "2", "--checkpoint", "out/ck-*.json", "--add-param", "lr=0.1", "--", "python train.py")[0] == 0
    assert tm.json("show", "same-2")["spec"] == handle.show()["spec"]
    assert tm.json("show", "same-2")["code"] == handle.show()["code"]


def test_a_killed_control_plane_is_brought_back_under_the_follower(tm: Tm) -> None:
    process = tm.begin("run", "--name", "survivor", "--env", "PACE=0.25", "--", "python train.py")
    assert process.stdout is not None
    first = process.stdout.readline()
    for pid in json.loads(tm.home.server_json.read_text())["pids"].values():
        os.kill(pid, signal.SIGKILL)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert [first.strip(), *out.splitlines()] == [f"step {step}/20 loss {1 / step:.4f}" for step in range(1, 21)]
    assert said.count("server is away; waiting") == 1


def test_up_and_down(tm: Tm) -> None:
    assert tm("up")[1].startswith("already running: http://")
    process = tm.begin("run", "--name", "stays", "--", "sleep", "60")
    tm.await_running("stays-1")
    assert tm("down")[1].startswith("stays-1 keeps running on ")
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.splitlines()[-2:]) == (
        7, ["error: the server was stopped; its jobs keep running", "  start it again: tm up"],
    )  # fmt: skip
    assert live_processes.running(tm.home) is None
    assert tm("ps")[0] == 7
    assert tm.json("up")["started"] == ["api", "control"]
    assert tm.json("show", "stays-1")["state"] == "running"
    checks = {check["name"]: check["ok"] for check in tm.json("doctor", "--replay")}
    assert (checks["server"], checks["replay"]) == (True, True)
    assert tm("down", "--cancel", "-q")[:2] == (0, "")
    assert tm("doctor")[0] == 0
