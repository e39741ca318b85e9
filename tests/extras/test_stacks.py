"""`tm exec --stacks` with a real py-spy: the stacks of every rank, and a clear word where there is none."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from running import server
from waiting import deadline

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not shutil.which("py-spy"), reason="py-spy is not on the PATH")]
HANG = """
import time
def stuck_in_a_collective():
    time.sleep(600)
print("hanging", flush=True)
stuck_in_a_collective()
"""


def test_stacks_of_all_ranks_and_of_one(tmp_path: Path) -> None:
    with server(tmp_path) as tm:
        tm.file("hang.py", HANG)
        job = tm.submit("--ranks", "2", "--cpus", "0.1", "--", "bash", "-c", "python hang.py")
        deadline(lambda: "[1] hanging" in tm.ok("logs", job), "both ranks to hang", 60, 0.2)
        said = tm("exec", job, "--stacks")
        if said.code != 0 and "Permission" in said.out + said.err:
            pytest.skip("this machine lets no process read another's memory")
        assert (said.code, said.out.count("stuck_in_a_collective (hang.py:4)")) == (0, 2)
        assert "== rank 0, process " in said.out
        alone = tm.ok("exec", job, "--stacks", "--rank", "1")
        assert ("== rank 1, process " in alone, "rank 0" in alone) == (True, False)
        assert tm.show(job)["state"] == "running"


def test_without_py_spy_it_says_what_to_install(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in ("python", "python3"):
        (empty / name).symlink_to(sys.executable)
    path = f"{empty}{os.pathsep}/usr/bin{os.pathsep}/bin"
    if shutil.which("py-spy", path=path):
        pytest.skip("py-spy is part of this system")
    os.environ["PATH"], before = path, os.environ["PATH"]
    try:
        with server(tmp_path) as tm:
            tm.environment["PATH"] = path
            tm("down")
            tm.ok("up")
            job = tm.submit("--", "python3", "-c", "import time; print('up', flush=True); time.sleep(600)")
            deadline(lambda: "up" in tm.ok("logs", job), "it to run", 60, 0.2)
            said = tm("exec", job, "--stacks")
            assert (said.code, said.err.splitlines()[0].startswith("error: py-spy is neither")) == (127, True)
    finally:
        os.environ["PATH"] = before
