"""An agent that shares no disk with the server: its code comes, and its output, records and checkpoints go, by the server alone."""

import errno
import hashlib
import io
import json
import os
import socket
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import agent
from api_server import SECRET, Api, agent_headers, serving
from launches import launch
from waiting import deadline

from trainmaster.agent.transport import download
from trainmaster.agent.transport.file_copies import FileCopies
from trainmaster.agent.transport.remote_store import Absent
from trainmaster.blobs.code import object_name, store_tree
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Outcome, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.server.http.body_memory import MemoryBudget
from trainmaster.server.runtime.credentials import credential
from trainmaster.server.runtime.unsent_points import is_gone

TRAIN = b"""
import os, pathlib, time
for step in range(1, 4):
    print(f"step {step}: loss {1 / step}", flush=True)
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path(f"out/{step}.part").write_text(f"{step}")
    os.rename(f"out/{step}.part", f"out/step{step}.ckpt")
    time.sleep(0.7)
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
        deadline(lambda: (here / "rank0.log").exists() and "step 1" in (here / "rank0.log").read_text(), "output while it runs")
        assert not is_gone(api.home, AgentKey.parse(key)), "that its lock is not here says nothing"
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


def copies(api: Api, directory: Path, node: Path, **files: bytes) -> tuple[FileCopies, Path]:
    """The copies of a directory with these files (`_` for a dot), and where they arrive."""
    directory.mkdir()
    for name, data in files.items():
        (directory / name.replace("_", ".")).write_bytes(data)
    key = f"{placed(api)}.1/n0"
    return FileCopies(launch(directory, command=["true"], **far(api, node, key)), str(directory)), api.home.attempt("far-1", 1, 0)


def test_a_long_exit_record_arrives_whole(api: Api, tmp_path: Path) -> None:
    """It names each artifact and each checkpoint."""
    record = json.dumps({"kept": ["x" * 100] * 50_000}).encode()
    copying, here = copies(api, tmp_path / "a", tmp_path / "node", exit_json=record)
    assert copying.finish(20.0)
    assert (here / "exit.json").read_bytes() == record


@pytest.mark.parametrize("kind", ["name", "record", "pipe", "directory", "link"])
def test_a_file_that_cannot_be_copied_holds_up_no_other(api: Api, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "a"
    copying, here = copies(api, there, tmp_path / "node", exit_json=b"{}", rank0_log=b"hello\n")
    if kind == "name":
        (there / f"rank{'0' * 200}.log").touch()
    elif kind == "record":
        copying.record = "0" * 64
        store = Path(copying._launch["environment_store"])
        store.mkdir(parents=True)
        (store / f"{copying.record}.json").write_text("{}")
    elif kind == "pipe":
        os.mkfifo(there / "rank.log")
    elif kind == "directory":
        (there / "rank.log").mkdir()
    else:
        (there / "rank.log").symlink_to(there / "none")
    assert copying.finish(5.0)
    assert sorted(path.name for path in here.iterdir()) == ["apart", "exit.json", "rank0.log"]


def test_a_log_that_is_cut_and_grows_between_two_pieces(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (b"".join(b"%s %d\n" % (word, n) for n in range(200_000)) for word in (b"old", b"new"))
    copying, here = copies(api, tmp_path / "a", tmp_path / "node", rank0_log=old)
    sent = []
    send = copying._send

    def cutting(name: str, at: int, piece: bytes) -> int:
        sent.append(at)
        try:
            return send(name, at, piece)
        finally:
            if len(sent) == 1:
                (tmp_path / "a/rank0.log").write_bytes(new)

    monkeypatch.setattr(copying, "_send", cutting)
    assert copying.finish(20.0)
    assert (here / "rank0.log").read_bytes() == new, sent


def test_an_agent_of_this_machine_copies_nothing(api: Api) -> None:
    """Its directory is here: a copy would stand for its own words, and its lock would count no more."""
    key = f"{placed(api)}.1/n0"
    here = api.home.attempt("far-1", 1, 0)
    here.mkdir(parents=True)
    (here / "lock").touch()
    assert put(api, key, "exit.json", 0, b"{}").status_code == 400
    assert [path.name for path in here.iterdir()] == ["lock"]


def test_an_attempt_of_which_the_api_was_not_told(api: Api, tmp_path: Path) -> None:
    """Its agent may come before the datagram does; a 404 would end its copies."""
    key = f"{placed(api)}.1/n0"
    assert put(api, key, "rank0.log", 0).status_code == 200
    api.control.home = Home(tmp_path)  # the datagram gets lost
    again, share = Verdict(Action.RESTART, State.QUEUED, "again"), NodeShare("node0", "10.0.0.7", 1.0)
    ended = (ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, again))
    api.control.record("far-1", *ended, ev.Placed(2, Allocation((share,))))
    assert put(api, "far-1.2/n0", "rank0.log", 0).status_code == 200


def test_pieces_in_memory_have_the_common_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    key, piece = f"{placed(api)}.1/n0", b"x" * (1 << 20)
    monkeypatch.setattr(api.app.state, "body_memory", MemoryBudget(3 << 19, 0.2))
    with memory_held(api, key):
        assert put(api, key, "rank0.log", 0, piece).status_code == 503
    deadline(lambda: not api.app.state.body_memory.held_bytes, "the room of a piece that broke off")
    assert put(api, key, "rank0.log", 0, piece).status_code == 200


@contextmanager
def memory_held(api: Api, key: str) -> Iterator[None]:
    """A piece of 1 MiB that does not come to its end."""
    url = api.http.base_url
    lines = [f"{name}: {value}" for name, value in {**agent_headers(key), "Host": "x", "Content-Length": str(1 << 20)}.items()]
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall("\r\n".join(["PUT /agent/file?name=rank1.log&at=0 HTTP/1.1", *lines, "", "x"]).encode())
        deadline(lambda: api.app.state.body_memory.held_bytes, "the first piece")
        yield


@pytest.mark.parametrize("lost", ["tree", "object", "damaged"])
def test_a_code_copy_that_the_store_lacks_ends_the_start_at_once(api: Api, tmp_path: Path, lost: str) -> None:
    digest = store_code(api)
    objects = api.home.blobs / "code/objects"
    one = next(path for path in (api.home.blobs.rglob(f"{digest}.json") if lost == "tree" else objects.rglob("*")) if path.is_file())
    one.unlink()
    if lost == "damaged":
        one.write_bytes(b"?")
    key = f"{placed(api, digest=digest)}.1/n0"
    code = {"tree": str(tmp_path / f"trees/{digest}.json"), "objects": str(tmp_path / "objects"), "source": "/project"}
    with pytest.raises(Absent):
        download.code(launch(tmp_path, command=["true"], **far(api, tmp_path, key, code=code)))


class Full(io.FileIO):
    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_of_the_node_is_told_at_once(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store_code(api)
    key = f"{placed(api, digest=digest)}.1/n0"
    code = {"tree": str(tmp_path / f"trees/{digest}.json"), "objects": str(tmp_path / "objects"), "source": "/project"}
    made = launch(tmp_path, command=["true"], **far(api, tmp_path, key, code=code))
    monkeypatch.setattr(download, "open", lambda path, *given, **named: Full(path, "w"), raising=False)
    with pytest.raises(OSError, match="No space left"):
        download.code(made)


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
