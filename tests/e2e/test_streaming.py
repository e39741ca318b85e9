"""A store of which no address can be signed and that is no directory to the agents: every byte goes through our server.

The store is fsspec's `dir` file system over a directory, which `FsBlobs` takes for any file system that is not this machine's;
that it is one lets the test read what came there without asking the server.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from running import Tm, attempts, gone, kill, server
from waiting import deadline

from trainmaster.home import Home

pytestmark = pytest.mark.timeout(300)

MIB = 1024 * 1024
SIZE = 9 * MIB + 5  # several pieces of a stream, the last one odd
STEPS = 4
PROGRAM = """
import os, sys, time
start = int.from_bytes(open(sys.argv[2], "rb").read(8), "big") if len(sys.argv) > 2 else 0
os.makedirs("out", exist_ok=True)
open("GATES/pid", "w").write(str(os.getpid()))
for step in range(start + 1, STEPS + 1):
    with open("out/part", "wb") as file:
        file.write(step.to_bytes(8, "big") + os.urandom(SIZE))
    os.rename("out/part", f"out/ckpt-{step}.pt")
    print(f"step {step}: loss {1 / step}", flush=True)
    while not os.path.exists("GATES" + f"/{step}"):
        time.sleep(0.02)
open("out/report.csv", "w").write("step,loss")
"""


def whole(far: Path, job: str) -> list[int]:
    """The steps of a job's checkpoints in the store that have all their files; each file has the digest that its manifest tells."""
    steps = []
    for path in far.glob(f"checkpoints/{job}/*/n0/MANIFEST.json"):
        try:
            told = json.loads(path.read_bytes())
            for each in told["files"]:
                assert hashlib.sha256((path.parent / each["path"]).read_bytes()).hexdigest() == each["sha256"]
        except FileNotFoundError:
            continue  # not whole: it is being removed
        steps.append(told["step"])
    return sorted(steps)


def committed(tm: Tm, job: str, step: int) -> None:
    deadline(lambda: step in [one["step"] for one in tm.show(job)["checkpoints"]], f"the checkpoint of step {step}", 60.0, 0.2)


def test_checkpoints_stream_through_the_server_and_back_and_older_ones_are_given_up(tmp_path: Path) -> None:
    root, gates, home = tmp_path / "far", tmp_path / "gates", Home(tmp_path / "home")
    far = root / str(root).lstrip("/")  # of such a URL, fsspec takes the path for the file system's root and for a path in it
    gates.mkdir()
    home.root.mkdir(mode=0o700)
    (home.root / "server.toml").write_text(f'[storage]\nurl = "dir::file://{root}"\ncache_gib = 1\n')
    with server(tmp_path) as tm:
        program = PROGRAM.replace("SIZE", str(SIZE)).replace("GATES", str(gates)).replace("STEPS", str(STEPS))
        tm.file("train.py", program)
        options = ("--checkpoint", "out/ckpt-{step}.pt", "--resume-arguments", "--resume {path}", "--artifact", "out/*.csv")
        job = tm.submit(*options, "--keep", "2", "--", sys.executable, "train.py")
        committed(tm, job, 1)
        (gates / "1").touch()
        committed(tm, job, 2)
        assert whole(far, job) == [1, 2]

        shutil.rmtree(home.cache / "checkpoints")  # what is resumed from comes back through the server
        pid = int((gates / "pid").read_text())
        kill(pid)
        gone(pid, 60.0)
        (gates / "2").touch()
        committed(tm, job, 3)
        (gates / "3").touch()
        committed(tm, job, 4)
        (gates / "4").touch()
        shown = tm.ended(job, 90.0)
        assert (shown["state"], attempts(shown, "resumed_from_step")) == ("succeeded", [(None,), (2,)])
        deadline(lambda: whole(far, job) == [3, 4], "what retention gave up to go", 60.0, 0.2)
        assert tm.ok("get", job, "out/report.csv", "-o", "-").strip() == "step,loss"

        newest = {one["step"]: one["bytes"] for one in shown["checkpoints"]}
        (used,) = [one for one in tm.json("storage")["use"] if one["kind"] == "checkpoints"]
        assert (used["spare_bytes"] >= newest[3], used["orphaned_bytes"]) == (True, 0)
        asked = ("storage", "gc", "--older-checkpoints")
        assert tm.json(*asked)["given_up"] == 0  # it ended less than a day ago
        assert tm.json(*asked, "--grace", "0s", "--dry-run")["given_up"] == 1
        assert whole(far, job) == [3, 4]
        said = tm(*asked, "--grace", "0s")
        assert (said.code, "this would remove 1 older checkpoint of ended jobs, 9.44 MB" in said.err) == (2, True), said
        said = tm(*asked, "--grace", "0s", "--yes")
        assert (said.code, "removed 1 older checkpoint, 9.44 MB" in said.err) == (0, True), said
        deadline(lambda: whole(far, job) == [4], "the older checkpoint to go", 60.0, 0.2)
        assert [one["step"] for one in tm.show(job)["checkpoints"]] == [4]
        assert tm.json(*asked, "--grace", "0s")["given_up"] == 0

        strange = far / "checkpoints" / "other-7" / "0001-00001" / "n0" / "weights"
        strange.parent.mkdir(parents=True)
        strange.write_bytes(b"12345")
        assert "5 B are of jobs that are not on record, or perhaps stored after the backup" in tm("storage").err
        assert (tm.json("storage", "gc", "--grace", "0s")["by_kind"].get("checkpoints", 0), strange.exists()) == (0, True)
        assert tm.json("storage", "gc", "--grace", "0s", "--unknown-jobs", "--yes")["by_kind"]["checkpoints"] == 5
        assert not strange.exists()
        assert whole(far, job) == [4]
