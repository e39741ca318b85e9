"""An agent that shares no disk with the server: its code comes, and its output, records and checkpoints go, by the server alone."""

import fcntl
import hashlib
import io
import json
import os
import resource
import signal
import socket
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import agent
from api_server import SECRET, Api, agent_headers, serving
from launches import launch as orders
from launches import write
from waiting import deadline

from trainmaster.agent.transport import download
from trainmaster.agent.transport.file_copies import FileCopies
from trainmaster.agent.transport.remote_store import Absent, Denied
from trainmaster.blobs.code import object_name, store_tree, tree_name
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Outcome, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.server.runtime import limits
from trainmaster.server.runtime.credentials import credential
from trainmaster.server.runtime.unsent_points import is_gone
from trainmaster.wire.names import COPY_WHOLE_BYTES

TRAIN = b"""
import os, pathlib, time
for step in range(1, 4):
    print(f"step {step}: loss {1 / step}", flush=True)
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path(f"out/{step}.part").write_text(f"{step}")
    os.rename(f"out/{step}.part", f"out/step{step}.ckpt")
    while step == 2 and not os.path.exists("go"):
        time.sleep(0.02)
    time.sleep(0.3)
print(pathlib.Path("lib/data.txt").read_text())
"""
FILES = {"train.py": TRAIN, "lib/data.txt": b"from the copy", "lib/same.txt": b"from the copy", "lib/empty.txt": b""}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "server") as served:
        yield served


def placed(api: Api, **code: Any) -> str:
    """A job whose first attempt is placed. The engine is this test."""
    spec, origin = JobSpec(command=("true",), name="far"), Origin(user="ada", host="laptop", directory="/project")
    share = NodeShare("node0", "10.0.0.7", 1.0)
    api.control.record("far-1", ev.Submitted(1, spec, origin, CodeCopy(**code), 0.0), ev.Placed(1, Allocation((share,))))
    return "far-1"


def store_code(api: Api) -> str:
    """The digest of a code copy in the store."""
    entries = []
    for path, data in sorted(FILES.items()):
        sha256 = hashlib.sha256(data).hexdigest()
        api.services.blobs.put(object_name(sha256), data)
        entries.append({"path": path, "type": "file", "sha256": sha256, "mode": 0o644, "bytes": len(data)})
    return store_tree(api.services.blobs, {"entries": entries})


def far(api: Api, node: Path, key: str, **more: Any) -> dict[str, Any]:
    """The launch of an agent on a node that has only the server's address and its own credential."""
    return {
        "key": key, "job": "far-1", "server_url": str(api.http.base_url).rstrip("/"), "credential": credential(SECRET, key),
        "apart": True, "remote": True, "checkpoint_store": str(node / "cache/checkpoints/far-1"),
        "artifact_store": str(node / "cache/artifacts/far-1"), **more,
    }  # fmt: skip


def test_a_job_runs_where_nothing_of_the_server_is(api: Api, tmp_path: Path) -> None:
    digest = store_code(api)
    node, key = tmp_path / "node", f"{placed(api, digest=digest)}.1/n0"
    code = {"tree": str(node / f"cache/code/trees/{digest}.json"), "objects": str(node / "cache/code/objects"), "source": "/project"}
    launch = far(api, node, key, code=code, checkpoint_path="out/step{step}.ckpt")
    here = api.home.attempt("far-1", 1, 0)
    with agent(node / "a", [sys.executable, "train.py"], **launch) as it:
        deadline(lambda: (here / "rank0.log").exists() and "step 2" in (here / "rank0.log").read_text(), "output while it runs")
        assert not is_gone(api.home, AgentKey.parse(key)), "that its lock is not here says nothing"
        (node / "a/work/go").touch()
        record = it.ended()
    assert record["ranks"][0]["exit_code"] == 0, (it.words(), it.log())
    assert it.log().endswith("from the copy\n")
    for name in ("rank0.log", "rank0.log.times", "exit.json"):
        assert (here / name).read_bytes() == (node / "a" / name).read_bytes(), name
    assert is_gone(api.home, AgentKey.parse(key))
    known = json.loads((api.home.environments / f"{record['environment']}.json").read_bytes())
    assert "packages" in known
    staged = [one["id"] for one in record["staged"]]
    assert staged
    manifest = json.loads(api.services.blobs.open(f"checkpoints/far-1/{staged[-1]}/n0/MANIFEST.json").read())
    assert [file["path"] for file in manifest["files"]] == ["out/step3.ckpt"]
    assert [step for step, _, _, _ in api.services.metrics.points("far-1", "loss", None, 10)] == [1, 2, 3]


def test_output_of_a_node_that_is_lost_is_there_up_to_its_last_seconds(api: Api, tmp_path: Path) -> None:
    node, key = tmp_path / "node", f"{placed(api)}.1/n0"
    here = api.home.attempt("far-1", 1, 0)
    code = "for n in $(seq 1000); do echo line $n; sleep 0.1; done"
    with agent(node / "a", code, **far(api, node, key)) as it:
        it.printed("line 25\n")
        assert it.process is not None
        it.process.kill()
    got = (here / "rank0.log").read_text()
    assert it.log().startswith(got)
    assert int(got.split()[-1]) >= 10, got
    assert not is_gone(api.home, AgentKey.parse(key))


def test_a_log_that_is_cut_on_the_node_is_cut_here(api: Api, tmp_path: Path) -> None:
    node, key = tmp_path / "node", f"{placed(api)}.1/n0"
    code = "for n in $(seq 40); do for m in $(seq 50); do echo line $n $m of many; done; sleep 0.1; done"
    with agent(node / "a", code, log_max_bytes=8192, **far(api, node, key)) as it:
        it.ended()
    assert "this log reached its limit" in it.log()
    assert (api.home.attempt("far-1", 1, 0) / "rank0.log").read_bytes() == (node / "a/rank0.log").read_bytes()


def copies(api: Api, directory: Path, files: dict[str, bytes]) -> FileCopies:
    """Of an attempt's directory on a node, as its agent makes them."""
    for name, data in files.items():
        write(directory / name, data)
    key = f"{placed(api)}.1/n0"
    return FileCopies(orders(directory, **far(api, directory.parent, key)), str(directory))


def test_one_file_that_is_not_wanted_keeps_no_other(api: Api, tmp_path: Path) -> None:
    """Seen: the agent sent for ever, or gave up all others, the record of its end included."""
    long = f"rank{'0' * 200}.log"
    made = copies(api, tmp_path / "a", {"rank0.log": b"hello\n", long: b"x", "exit.json": b"{}"})
    made.record = 64 * "0"
    os.truncate(write(tmp_path / "a/environments" / f"{made.record}.json", ""), COPY_WHOLE_BYTES + 1)
    os.symlink("/etc/hostname", tmp_path / "a/rank1.log")
    os.mkfifo(tmp_path / "a/rank2.log")
    assert made.finish(10.0)
    assert made.trouble.startswith("not copied to the server: ")
    assert sorted(os.listdir(api.home.attempt("far-1", 1, 0))) == ["apart", "exit.json", "rank0.log"]


def test_output_that_is_not_copied_is_told(api: Api, tmp_path: Path) -> None:
    """It stood in the agent's own log alone, on a node where nobody looks."""
    node, key = tmp_path / "node", f"{placed(api)}.1/n0"
    code = f"touch ../rank{'0' * 200}.log; echo done"
    with agent(node / "a", code, **far(api, node, key)) as it:
        it.ended()
    told = [row.command.report for row in api.services.inbox.drain(0, 1000) if isinstance(row.command, AgentReport)]
    warned = [one["text"] for one in told if one["kind"] == "warned" and one["topic"] == "copies"]
    assert warned[-1].startswith(f"not copied to the server: rank{'0' * 50}"), told


def test_a_record_of_an_end_that_is_too_long_ends_the_copies(api: Api, tmp_path: Path) -> None:
    made = copies(api, tmp_path / "a", {"rank0.log": b"hello\n", "exit.json": b""})
    os.truncate(tmp_path / "a/exit.json", COPY_WHOLE_BYTES + 1)
    assert made.finish(10.0)
    assert not (api.home.attempt("far-1", 1, 0) / "exit.json").exists()


def test_a_log_that_is_cut_between_two_pieces(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mark was taken from what the file had become, so the copy kept the old beginning."""
    old, new = (b"".join(b"%s %d\n" % (word, n) for n in range(200_000)) for word in (b"old", b"new"))
    made, sent = copies(api, tmp_path / "a", {"rank0.log": old}), list[int]()
    plain = made._send

    def cutting(name: str, at: int, piece: bytes) -> int | None:
        sent.append(at)
        there = plain(name, at, piece)
        if len(sent) == 1:
            (tmp_path / "a/rank0.log").write_bytes(new)
        return there

    monkeypatch.setattr(made, "_send", cutting)
    made._turn()
    assert made.finish(10.0)
    assert (api.home.attempt("far-1", 1, 0) / "rank0.log").read_bytes() == new


def test_an_attempt_that_the_api_does_not_know_yet_is_asked_for_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word of it was lost on its way, and what was known is a second old."""
    key = f"{placed(api)}.1/n0"
    assert put(api, key, "rank0.log", 0).status_code == 200
    share = NodeShare("node0", "10.0.0.7", 1.0)
    monkeypatch.setattr(api.control, "home", Home(api.home.root / "nobody"))  # whose socket is not there
    ended = ev.AttemptEnded(1, Verdict(Action.RESTART, State.QUEUED, "again"))
    api.control.record("far-1", ev.NodeEnded(1, 0, Outcome(lost=True)), ended, ev.Placed(2, Allocation((share,))))
    assert put(api, "far-1.2/n0", "rank0.log", 0).status_code == 200


def test_an_agent_of_this_machine_does_not_write_over_its_own_files(api: Api) -> None:
    """Its directory was then taken for a copy, and a live agent for one that is gone."""
    key, here = f"{placed(api)}.1/n0", api.home.attempt("far-1", 1, 0)
    with write(here / "lock", "").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert put(api, key, "exit.json", 0).status_code == 400
        assert os.listdir(here) == ["lock"]
        assert not is_gone(api.home, AgentKey.parse(key))


@pytest.mark.parametrize("lost", ["object", "tree"])
def test_a_code_copy_that_is_not_whole_is_told_at_once(api: Api, tmp_path: Path, lost: str) -> None:
    """It was asked for again and again, for a quarter of an hour."""
    digest = store_code(api)
    key, node = f"{placed(api, digest=digest)}.1/n0", tmp_path / "node"
    place = tree_name(digest) if lost == "tree" else object_name(hashlib.sha256(TRAIN).hexdigest())
    (api.home.blobs / place).unlink()
    code = {"tree": str(node / f"code/trees/{digest}.json"), "objects": str(node / "code/objects"), "source": "/project"}
    began_s = time.monotonic()
    with pytest.raises(Absent):
        download.code(orders(node, **far(api, node, key, code=code)))
    assert time.monotonic() - began_s < 5.0
    assert [path for path in node.rglob("*") if path.is_file()] == []


def test_a_node_whose_disk_takes_nothing_is_told_at_once(api: Api, tmp_path: Path) -> None:
    digest = store_code(api)
    key, node = f"{placed(api, digest=digest)}.1/n0", tmp_path / "node"
    code = {"tree": str(node / f"code/trees/{digest}.json"), "objects": str(node / "code/objects"), "source": "/project"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(Denied, match="cannot be written"):
            download.code(orders(node, **far(api, node, key, code=code)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_bodies_of_many_agents_share_the_memory_for_bodies(api: Api) -> None:
    """Each of them may be 4 MiB, and 2,048 connections are allowed."""
    key = f"{placed(api)}.1/n0"
    budget = api.app.state.body_memory
    head = "".join(f"{name}: {value}\r\n" for name, value in agent_headers(key).items())
    most = limits.body_max_bytes("PUT", "/agent/file")
    opened = []
    for n in range(50):
        one = socket.create_connection((api.http.base_url.host, api.http.base_url.port or 0), timeout=10)
        one.sendall(f"PUT /agent/file?name=rank{n}.log&at=0 HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {most}\r\n\r\n".encode())
        opened.append(one)
    deadline(lambda: budget.held_bytes >= limits.ALL_BODIES_BYTES - most, "the budget to be held")
    assert budget.held_bytes <= limits.ALL_BODIES_BYTES
    for one in opened:
        one.close()
    deadline(lambda: budget.held_bytes == 0, "all of it to be given back")


def put(api: Api, key: str, name: str, at: object, data: bytes = b"x") -> Any:
    return api.http.put("/agent/file", params={"name": name, "at": str(at)}, content=data, headers=agent_headers(key))


def test_pieces_that_come_twice_late_or_too_far(api: Api) -> None:
    key, path = f"{placed(api)}.1/n0", api.home.attempt("far-1", 1, 0) / "rank0.log"
    assert [put(api, key, "rank0.log", at, data).json()["size"] for at, data in ((0, b"one\n"), (4, b"two\n"), (4, b"two\n"))] == [4, 8, 8]
    assert path.read_bytes() == b"one\ntwo\n"
    assert put(api, key, "rank0.log", 100, b"far").json() == {"size": 8}, "the agent goes on where this ends"
    assert put(api, key, "rank0.log", 2, b"!").json() == {"size": 3}
    assert path.read_bytes() == b"on!"


@pytest.mark.parametrize("name", ["../exit.json", "rank0.log/../x", "launch.json", "lock", "stop.json", "rank0.sdk", "", "rank/../../x.log", "rank\n.log"])
def test_an_agent_writes_no_other_file(api: Api, name: str) -> None:
    key = f"{placed(api)}.1/n0"
    assert put(api, key, name, 0).status_code == 400
    assert not list(api.home.root.rglob("x*"))


def test_what_is_refused(api: Api, tmp_path: Path) -> None:
    key = f"{placed(api)}.1/n0"
    assert [put(api, key, "rank0.log", at).status_code for at in ("", "-1", "1.5", "9" * 30, 2**32)] == [400, 400, 400, 400, 413]
    assert put(api, "far-1.2/n0", "rank0.log", 0).status_code == 404, "an attempt that is not there yet"
    assert put(api, "none-1.1/n0", "rank0.log", 0).status_code == 404
    record = json.dumps({"python": 1}).encode()
    assert put(api, key, f"{'0' * 64}.json", 0, record).status_code == 400, "a record has the name of its digest"
    assert put(api, key, f"{hashlib.sha256(record).hexdigest()}.json", 0, record).status_code == 200
    (tmp_path / "elsewhere").write_text("safe")
    (api.home.attempt("far-1", 1, 0)).mkdir(parents=True, exist_ok=True)
    os.symlink(tmp_path / "elsewhere", api.home.attempt("far-1", 1, 0) / "rank0.log")
    assert put(api, key, "rank0.log", 0).status_code >= 400
    assert (tmp_path / "elsewhere").read_text() == "safe"


def test_the_code_comes_in_one_archive_and_to_its_own_job_alone(api: Api) -> None:
    digest = store_code(api)
    key = f"{placed(api, digest=digest)}.1/n0"
    answer = api.http.get("/agent/blob", params={"name": f"code/{digest}.tar"}, headers=agent_headers(key))
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        names = archive.getnames()
    assert names[-1] == f"trees/{digest}.json"
    assert len(names) == len({hashlib.sha256(data).hexdigest() for data in FILES.values()}) + 1
    other = api.http.get("/agent/blob", params={"name": f"code/{'0' * 64}.tar"}, headers=agent_headers(key))
    assert other.status_code == 401
