"""What breaks from outside: a full disk, a corrupt checkpoint, a flood of output, words of an attempt that is over."""

import errno
import hashlib
import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import Tm, attempts, kill, ranks_of, server
from waiting import deadline

LOG_MAX = 4 << 20
SAVES = """
import json, os, pathlib, time
path = pathlib.Path("ckpt.json")
done = json.loads(path.read_text())["step"] if path.exists() else 0
for step in range(done + 1, 31):
    print(f"step {step}: loss {1 / step:.3f}", flush=True)
    pathlib.Path("part").write_text(json.dumps({"step": step}))
    if os.environ["TRAINMASTER_ATTEMPT"] == "2":
        break
    os.rename("part", path)
    while step == 8:
        time.sleep(0.1)
    time.sleep(0.15)
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server whose jobs may log 4 MiB each."""
    root = tmp_path_factory.mktemp("luck")
    home = root / "home"
    home.mkdir(mode=0o700)
    (home / "settings.json").write_text(json.dumps({"log_max_bytes": LOG_MAX}))
    with server(root) as tm:
        yield tm


def test_a_corrupt_checkpoint_is_seen_and_the_one_before_is_used(tm: Tm) -> None:
    tm.file("saves.py", SAVES)
    job = tm.submit("--name", "corrupt", "--checkpoint", "ckpt.json", "--", "python", "saves.py")

    def both_kept() -> bool:
        shown = tm.show(job)
        return len(shown["checkpoints"]) > 1 and shown["checkpoints"][-1]["step"] == 8

    deadline(both_kept, "two checkpoints, the last one of step 8", 20, 0.2)
    before, newest = tm.show(job)["checkpoints"][-2:]
    stored = tm.home.blobs / "checkpoints" / job / newest["id"] / "n0" / "ckpt.json"
    data = bytearray(stored.read_bytes())
    data[-2] ^= 1
    os.chmod(stored, 0o600)
    stored.write_bytes(data)
    Path(tm.show(job)["work"][0], "ckpt.json").unlink()  # else the file that is still there, and whole, is the one used
    kill(ranks_of(tm, job)[0])
    shown = tm.ended(job)
    assert attempts(shown, "state", "resumed_from_step") == [("restarted", None), ("succeeded", before["step"])]
    good = {one["id"]: one["good"] for one in shown["checkpoints"]}
    assert (good[newest["id"]], good[before["id"]]) == (False, True)
    said = f"checkpoint {newest['id']} of about step 8 is damaged: the bytes in the store do not have their digest; used only if no other is good"
    assert "CORRUPT: used only if no other is good" in tm.ok("show", job)
    assert ([one["text"] for one in shown["troubles"]], shown["notes"]) == ([said], [])
    assert said in " ".join(tm.ok("note", "--list", job).split())


def test_damaged_code_is_never_run_and_stored_anew_by_the_next_submit(tm: Tm) -> None:
    """T2: one byte was changed in the store. `tm reproduce` ran it, a submit of the undamaged file too, and nothing was said."""
    program = tm.file("quiet.py", "print('step 1: loss 0.5')\n")
    tm.file("quiet.yaml", "name: quiet\ncommand: python quiet.py\n")
    first = tm.ended(tm.submit("quiet.yaml"))["id"]
    sha256 = hashlib.sha256(program.read_bytes()).hexdigest()
    stored = tm.home.blobs / "code" / "objects" / sha256[:2] / sha256[2:]
    held = tm.submit("quiet.yaml", "--hold")
    stored.write_bytes(stored.read_bytes().replace(b"0.5", b"0.7"))
    whole = "is not whole on the server: quiet.py is missing or damaged"
    for words in (("reproduce", first), ("rerun", first)):
        refused = tm(*words)
        assert refused.code != 0
        assert whole in refused.err
        assert f"take the code of its directory: tm rerun {first} --workdir " in refused.err
    assert f"damaged, by their digest: code/objects/{sha256[:2]}/" in tm("doctor").out
    tm.ok("release", held)
    failure = tm.ended(held)["failure"]
    assert failure["message"].startswith("could not be started: the stored copy of quiet.py is damaged: ")
    again = tm.ended(tm.submit("quiet.yaml"))
    assert (again["state"], again["metrics"]["loss"]["value"]) == ("succeeded", 0.5)
    assert "damaged, by" not in tm("doctor").out
    assert tm.ended(tm.ok("reproduce", first, "-q").strip())["state"] == "succeeded"


def test_a_half_written_checkpoint_is_no_checkpoint(tm: Tm) -> None:
    """The rank is killed while it writes; what it left is set aside and the last whole one put back."""
    code = (
        "import json, os, pathlib, time\n"
        "path = pathlib.Path('ckpt.json')\n"
        "print('found', path.read_text() if path.exists() else None, flush=True)\n"
        "if os.environ['TRAINMASTER_ATTEMPT'] == '1':\n"
        "    path.write_text('{\"step\": 1}'); time.sleep(2.5)\n"
        "    file = path.open('w'); file.write('{\"step\": 2, \"weig'); file.flush()\n"
        "    pathlib.Path('torn').touch(); time.sleep(60)\n"
    )
    tm.file("half.py", code)
    job = tm.submit("--name", "half", "--checkpoint", "ckpt.json", "--", "python", "half.py")
    work = Path(deadline(lambda: tm.show(job)["work"] or None, "a work directory", every_s=0.1)[0])
    deadline(lambda: (work / "torn").exists(), "the torn file", 20, 0.1)
    kill(ranks_of(tm, job)[0])
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause") == [("restarted", "killed"), ("succeeded", None)]
    assert [one["good"] for one in shown["checkpoints"]] == [True]
    assert tm.ok("logs", job).splitlines() == ["found None", 'found {"step": 1}']


def test_a_flood_of_output_holds_nobody_up_and_is_cut_with_a_word(tm: Tm) -> None:
    """200 MB as fast as they go: the job ends at once, the log keeps its limit, its beginning and its end."""
    command = "echo first; head -c 200000000 /dev/zero | tr '\\0' x | fold -w 99; echo; echo step 9: loss 0.25; echo last"
    job = tm.ended(tm.submit("--name", "flood", "--", command), timeout_s=45.0)
    assert job["state"] == "succeeded"
    log = tm.home.attempt(job["id"], 1, 0) / "rank0.log"
    assert log.stat().st_size <= LOG_MAX + (1 << 20)
    said = tm.ok("logs", job["id"])
    assert said.startswith("first\nxxxx")
    assert said.endswith("step 9: loss 0.25\nlast\n")
    assert f"[trainmaster: this log reached its limit of {LOG_MAX} bytes; " in said
    assert (job["step"], job["metrics"]["loss"]["value"]) == (9, 0.25)


def test_output_of_no_encoding_reaches_the_terminal(tm: Tm) -> None:
    command = r"printf 'caf\xe9 \xff\xfe\x00\x01 caf\xc3\xa9\nstep 1: loss 0.5\n\x1b[31mred\n\xf0\x9f'"
    job = tm.ended(tm.submit("--name", "bytes", "--", command))
    assert job["state"] == "succeeded"
    assert tm.ok("logs", job["id"]) == "caf\ufffd \ufffd\ufffd\x00\x01 café\nstep 1: loss 0.5\n\x1b[31mred\n\ufffd"
    assert job["metrics"]["loss"]["value"] == 0.5


def sync(tm: Tm, body: dict[str, object], credential: str) -> tuple[int, dict[str, object]]:
    """What the server answers an agent."""

    class Unix(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(10)
            self.sock.connect(os.fspath(tm.home.socket("api")))

    connection = Unix("localhost")
    connection.request("POST", "/agent/sync", json.dumps(body), {"Authorization": f"Bearer {credential}"})
    answer = connection.getresponse()
    value: dict[str, object] = json.loads(answer.read())
    connection.close()
    return answer.status, value


def test_a_word_of_an_attempt_that_is_over_changes_nothing(tm: Tm) -> None:
    """A late agent's checkpoint: its own credential is known, and the fence refuses what it says."""
    job = tm.submit("--name", "stale", "--", "sleep 60")
    rank = deadline(lambda: ranks_of(tm, job).get(0), "its rank", 20)
    kill(rank)
    deadline(lambda: tm.show(job)["attempt"] == 2 and tm.show(job)["state"] == "running", "attempt 2", 20, 0.1)
    launch = json.loads((tm.home.attempt(job, 1, 0) / "launch.json").read_bytes())
    staged = {"kind": "staged", "n": 99, "id": "0001-00001", "step": 5, "approximate": False, "parts_expected": 1,
              "digest": "d" * 64, "files": 1, "bytes": 1}  # fmt: skip
    points = [{"rank": 0, "step": 5, "values": {"loss": 0.1}, "age_s": 0.0}]
    body: dict[str, object] = {
        "key": f"{job}.1/n0", "reports": [staged], "points": points, "heartbeat": None, "wait_s": 0.0, "orders_seen": 0,
    }  # fmt: skip
    status, answer = sync(tm, body, launch["credential"])
    assert (status, answer["stale"]) == (200, True)
    assert [order["order"] for order in answer["orders"]] == ["stop"]  # type: ignore[attr-defined,index]
    assert sync(tm, {**body, "key": f"{job}.2/n0"}, launch["credential"])[0] == 401
    later = tm.submit("--name", "after", "--", "true")  # control has taken up everything before
    tm.ended(later)
    shown = tm.show(job)
    assert (shown["checkpoints"], shown["metrics"], shown["state"]) == ([], {}, "running")
    tm.ok("cancel", job)
    tm.ended(job)


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 24 MB of its own."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(ballast: Path) -> None:
    """Take the last byte of the disk."""
    with ballast.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as small, server(tmp_path, home=small / "home") as tm:
        (tm.work / "gate").touch()
        gate = tm.work / "gate"
        program = f"echo step 1: loss 0.5; while [ -e {gate} ]; do sleep 0.1; done; echo step 2: loss 0.25"
        running = tm.submit("--name", "running", "--cpus", "1", "--", program)
        tm.state(running, "running")
        waiting = tm.submit("--name", "waiting", "--cpus", str(os.cpu_count()), "--", "echo done")
        ballast = small / "ballast"
        fill(ballast)
        accepted = []
        while (said := tm("submit", "-q", "--name", "more", "--", "echo x")).code == 0:
            accepted.append(said.out.strip())  # what was free within the store's own files
            fill(ballast)
        words = "no space left for"
        assert (said.code, words in said.err) == (1, True), said
        assert (refused := tm("cancel", waiting)).code == 1
        assert words in refused.err, refused
        fill(ballast)
        gate.unlink()
        record = tm.home.attempt(running, 1, 0) / "exit.json"
        deadline(lambda: record.exists() and record.stat().st_size > 0, "the exit record on a full disk", 20)
        assert json.loads(record.read_bytes())["ranks"][0]["exit_code"] == 0
        listed = {job["id"]: job["state"] for job in tm.json("ps")}
        assert listed[waiting] == "queued"
        ballast.unlink()
        assert {tm.ended(job)["state"] for job in (running, waiting, *accepted)} == {"succeeded"}
        assert tm.ended(tm.submit("--name", "again", "--", "echo y"))["state"] == "succeeded"
        assert tm.ok("logs", running).splitlines()[0] == "step 1: loss 0.5"
        assert sorted(job["id"] for job in tm.json("ps", "--all")) == sorted([running, waiting, *accepted, "again-1"])
        assert "\nok     replay " in tm("doctor", "--replay").out
