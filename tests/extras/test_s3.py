"""Jobs whose checkpoints lie on S3: real server, real agents, an S3 server that throttles, resets, dies and comes back."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from s3_server import BUCKET, ENVIRONMENT, Proxy, proxy, s3_server

sys.path.append(str(Path(__file__).parents[1] / "e2e"))
from running import Tm, attempts, gone, kill, server
from waiting import deadline

from trainmaster.blobs.s3 import S3Blobs
from trainmaster.configuration import StorageSettings
from trainmaster.home import Home

pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.timeout(300)]

MIB = 1024 * 1024
PROGRAM = """
import os, sys, time
start = int.from_bytes(open(sys.argv[2], "rb").read(8), "big") if len(sys.argv) > 2 else 0
os.makedirs("out", exist_ok=True)
open("GATES/pid", "w").write(str(os.getpid()))
for step in range(start + 1, 7):
    with open("out/part", "wb") as file:
        file.write(step.to_bytes(8, "big") + bytes([step]) * SIZE)
    os.rename("out/part", f"out/ckpt-{step}.pt")
    print(f"step {step}: loss {1 / step}", flush=True)
    while not os.path.exists("GATES" + f"/{step}"):
        time.sleep(0.02)
open("out/report.csv", "w").write("step,loss")
"""
SDK_PROGRAM = """
import os
from trainmaster import sdk
with sdk.checkpoint(6) as directory:
    with open(os.path.join(directory, "weights.bin"), "wb") as file:
        file.write(os.urandom(SIZE))
"""


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with s3_server() as found:
        yield found


class Run:
    """A server whose store is on S3, and a program that waits at each step until it may go on."""

    def __init__(self, tm: Tm, store: Proxy, blobs: S3Blobs, gates: Path) -> None:
        self.tm, self.store, self.blobs, self.gates = tm, store, blobs, gates

    def submit(self, size: int) -> str:
        """The program with checkpoints of so many bytes."""
        self.tm.file("train.py", PROGRAM.replace("SIZE", str(size)).replace("GATES", str(self.gates)))
        options = ("--checkpoint", "out/ckpt-{step}.pt", "--resume-arguments", "--resume {path}", "--artifact", "out/*.csv")
        return self.tm.submit(*options, "--keep", "2", "--", sys.executable, "train.py")

    def pass_steps(self, *steps: int) -> None:
        """Let it go on beyond these."""
        for step in steps:
            (self.gates / str(step)).touch()

    def kill_rank(self) -> None:
        """By the number that the program itself wrote down."""
        pid = int((self.gates / "pid").read_text())
        kill(pid)
        gone(pid, 60.0)

    def committed(self, job: str, step: int) -> dict[str, Any]:
        """The job, once the checkpoint of a step is committed."""

        def there() -> dict[str, Any] | None:
            shown = self.tm.show(job)
            return shown if step in [one["step"] for one in shown["checkpoints"]] else None

        return deadline(there, f"the checkpoint of step {step}", 90.0, 0.2)

    def words(self, job: str) -> str:
        """What the agent and the servers said."""
        paths = [*self.tm.home.root.glob(f"attempts/{job}/*/n0/*.log"), *sorted(self.tm.home.root.glob("logs/*.log"))]
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in paths if path.exists())

    def whole(self, job: str) -> list[int]:
        """The steps of a job's checkpoints, each compared, byte for byte, with its manifest in the store."""
        steps = []
        for manifest in [stored.name for stored in self.blobs.walk(f"checkpoints/{job}") if stored.name.endswith("MANIFEST.json")]:
            with self.blobs.open(manifest) as file:
                told = json.loads(file.read())
            for each in told["files"]:
                with self.blobs.open(f"{manifest.rpartition('/')[0]}/{each['path']}") as file:
                    assert hashlib.sha256(file.read()).hexdigest() == each["sha256"]
            steps.append(told["step"])
        return sorted(steps)

    def all_whole(self, shown: dict[str, Any]) -> None:
        """The store has the checkpoints that are on record, the last step's among them, and no other."""

        def steps() -> bool:
            return self.whole(shown["id"]) == [one["step"] for one in self.tm.show(shown["id"])["checkpoints"]]

        deadline(steps, "what retention gave up to go", 60.0, 0.5)
        assert self.whole(shown["id"])[-1] == 6, self.words(shown["id"])


@contextmanager
def running(tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, cache_gib: float = 1.0) -> Iterator[Run]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    gates = tmp_path / "gates"
    gates.mkdir()
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o700)
    with proxy(address) as store:
        prefix = f"s3://{BUCKET}/{tmp_path.name}"
        (home.root / "server.toml").write_text(
            f'[storage]\nurl = "{prefix}"\nendpoint = "{store.url}"\ncache_gib = {cache_gib}\n'
        )
        with server(tmp_path) as tm:
            yield Run(tm, store, S3Blobs(StorageSettings(prefix, store.url)), gates)
            store.fault = lambda method, path: None
        for path in [*home.root.glob("logs/*"), *home.root.glob("attempts/*/*/*/*")]:
            if path.is_file():
                text = path.read_bytes()
                assert b"X-Amz-Signature" not in text, path
                assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"].encode() not in text, path


def test_a_run_is_resumed_from_s3_with_nothing_left_on_the_node(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, address, monkeypatch) as run:
        job = run.submit(20 * MIB)
        run.pass_steps(1)
        run.committed(job, 2)
        shutil.rmtree(run.tm.home.cache / "checkpoints")
        run.kill_rank()
        run.pass_steps(2, 3, 4, 5)
        run.committed(job, 6)
        run.pass_steps(6)
        shown = run.tm.ended(job, 90.0)
        assert (shown["state"], attempts(shown, "resumed_from_step")) == ("succeeded", [(None,), (2,)])
        run.all_whole(shown)
        assert run.tm.ok("get", job, "out/report.csv", "-o", "-").strip() == "step,loss"
        assert run.store.count("POST", "uploads=") >= 2
        used = {one["kind"]: one for one in run.tm.json("storage")["use"]}
        assert used["checkpoints"]["bytes"] > 40 * MIB
        assert used["checkpoints"]["orphaned_bytes"] == 0
        deadline(lambda: run.tm.json("storage", "gc", "--grace", "0s")["blobs"] == 0, "nothing more to collect")
        run.all_whole(shown)


def test_throttled_reset_and_unanswered_uploads_lose_nothing(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, address, monkeypatch) as run:
        turns = {"n": 0}

        def fault(method: str, path: str) -> str | None:
            turns["n"] += 1
            return {0: "slow", 3: "reset", 5: "half"}.get(turns["n"] % 8) if "/checkpoints/" in path else None

        job = run.submit(20 * MIB)
        run.store.fault = fault
        for step in range(1, 7):
            run.committed(job, step)
            run.pass_steps(step)
        shown = run.tm.ended(job, 90.0)
        assert shown["state"] == "succeeded"
        run.all_whole(shown)


def test_servers_killed_during_an_upload_come_back_and_no_checkpoint_is_wrong_or_lost(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the S3 server, for as long as an upload is under way; then our own, both processes, by kill -9."""
    with running(tmp_path, address, monkeypatch) as run:
        job = run.submit(40 * MIB)
        run.committed(job, 1)
        run.store.fault = _dies_at(run.store, "partNumber=3")
        run.pass_steps(1)
        deadline(lambda: run.store.fault is _DOWN, "the S3 server's end in the middle of an upload", 60.0)
        seen = len(run.store.seen)
        deadline(lambda: len(run.store.seen) > seen + 3, "the agent to try again", 60.0)
        assert [one["step"] for one in run.tm.show(job)["checkpoints"]] == [1]
        run.store.fault = lambda method, path: None
        run.committed(job, 2)

        pids = json.loads((run.tm.home.root / "server.json").read_text())["pids"]
        killed = [False]

        def fault(method: str, path: str) -> str | None:
            if "partNumber=2" in path and not killed[0]:
                killed[0] = True
                for which in ("control", "api"):
                    os.kill(pids[which], signal.SIGKILL)
            return None

        run.store.fault = fault
        run.pass_steps(2)
        deadline(lambda: killed[0], "an upload to be under way", 60.0)
        run.tm.ok("up")
        run.committed(job, 3)
        run.pass_steps(3, 4, 5)
        run.committed(job, 6)
        run.pass_steps(6)
        shown = run.tm.ended(job, 90.0)
        assert (shown["state"], len(shown["attempts"])) == ("succeeded", 1), (shown["attempts"], run.words(job))
        run.all_whole(shown)


def _DOWN(method: str, path: str) -> str:
    return "down"


def _dies_at(store: Proxy, word: str) -> Any:
    def fault(method: str, path: str) -> str | None:
        if word in path:
            store.fault = _DOWN
            return "down"
        return None

    return fault


def test_a_checkpoint_of_the_sdk_is_on_its_way_before_it_is_digested_and_parts_damaged_there_are_sent_again(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, address, monkeypatch) as run:
        flips = iter([False, True, True, False, True])
        run.store.fault = lambda method, path: "flip" if "partNumber" in path and next(flips, False) else None
        (run.tm.work / "train.py").write_text(SDK_PROGRAM.replace("SIZE", str(40 * MIB)))
        job = run.tm.submit("--", sys.executable, "train.py")
        shown = run.tm.ended(job, 90.0)
        assert (shown["state"], [one["step"] for one in shown["checkpoints"]]) == ("succeeded", [6]), run.words(job)
        assert run.store.compared == 5  # what each of the parts was worth in the end
        assert run.store.count("PUT", "partNumber") == 5 + 3
        run.all_whole(shown)


def test_a_store_that_refuses_is_said_and_training_goes_on(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, address, monkeypatch) as run:
        job = run.submit(20 * MIB)
        run.committed(job, 1)
        run.store.fault = lambda method, path: "denied" if method == "PUT" else None
        began_s = time.monotonic()
        run.pass_steps(*range(1, 7))
        shown = run.tm.ended(job, 60.0)
        assert time.monotonic() - began_s < 60.0
        assert (shown["state"], [one["step"] for one in shown["checkpoints"]]) == ("succeeded", [1])
        said = (run.tm.home.attempt(job, 1, 0) / "agent.log").read_text()
        assert "was not brought to the store" in said
        assert any(note.startswith("checkpoint of step 6 was not kept: ") and "credentials" in note for note in shown["notes"])
        assert "checkpoint of step 6 was not kept: " in run.tm.ok("show", job)
        assert "credentials" in said


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, address, monkeypatch) as run:
        job = run.submit(MIB)
        run.committed(job, 1)
        run.pass_steps(1)
        run.committed(job, 2)
        name = next(stored.name for stored in run.blobs.walk(f"checkpoints/{job}") if "ckpt-2" in stored.name)
        run.blobs.delete([name])
        run.blobs.put(name, b"\0" * (MIB + 8))
        shutil.rmtree(run.tm.home.cache / "checkpoints")
        run.kill_rank()
        run.pass_steps(*range(2, 7))
        shown = run.tm.ended(job, 90.0)
        assert (shown["state"], attempts(shown, "resumed_from_step")) == ("succeeded", [(None,), (1,)])
