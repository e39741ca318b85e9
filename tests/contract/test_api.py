"""REST: submit, list, show, cancel, nodes, code; with inbox rows joined in that control has not taken up."""

import contextlib
import hashlib
import io
import stat
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import NODE, Api, serving

from trainmaster import troubles
from trainmaster.home import account_name
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Artifact, Part
from trainmaster.model.commands import CancelJob, SetNodeState
from trainmaster.model.job import Action, Cause, Failure, Outcome, RankEnd, RestartBudget, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare, NodeState
from trainmaster.model.spec import CodeCopy, Origin
from trainmaster.wire import rest
from trainmaster.wire.code import digest

ALLOCATION = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def refused(answer: Any) -> tuple[int, str, str]:
    """Status, code and message of a refusal, whose shape is held here."""
    error = answer.json()["error"]
    assert sorted(error) == ["code", "details", "hint", "message", "request_id"]
    return answer.status_code, error["code"], error["message"]


def test_trouble_of_the_server_is_told_and_strangers_learn_its_topic_alone(api: Api) -> None:
    troubles.say("disk", "the disk of /somewhere is full")
    try:
        health = api.http.get("/healthz", headers={"Authorization": ""}).json()
        assert health["troubles"] == ["disk"]
        assert health["status"] == "ok"
        (one,) = api.get("/troubles")["troubles"]
        assert (one["topic"], one["text"]) == ("disk", "the disk of /somewhere is full")
        assert refused(api.http.get("/troubles", headers={"Authorization": ""}))[:2] == (401, "authentication")
    finally:
        troubles.clear("disk")
    assert api.get("/troubles") == {"troubles": []}


def test_health_needs_no_token_and_everything_else_does(api: Api) -> None:
    health = api.http.get("/healthz", headers={"Authorization": ""})
    assert health.json() == {"status": "ok", "version": "0.1.0", "api": True, "control": True, "nodes": 1, "troubles": []}
    for header in ("", "Bearer", "Bearer wrong", "Basic abc"):
        answer = api.http.get("/jobs", headers={"Authorization": header})
        assert refused(answer)[:2] == (401, "authentication")
        assert "wrong" not in answer.text
    assert refused(api.http.get("/nothing", headers={"Authorization": ""}))[:2] == (401, "authentication")


def test_the_homes_token_is_private_and_lies_in_one_file(api: Api) -> None:
    token = api.home.token_file.read_bytes().strip()
    holding = [path for path in api.home.root.iterdir() if path.is_file() and token in path.read_bytes()]
    assert holding == [api.home.token_file]
    assert stat.S_IMODE(api.home.token_file.stat().st_mode) == 0o600


def test_a_submit_is_listed_at_once_and_the_same_after_control_took_it_up(api: Api) -> None:
    job = api.submit("python train.py", key="a", tags={"owner": "ann"})
    before = api.get("/jobs")["jobs"]
    assert [(row["id"], row["state"], row["reason"]) for row in before] == [
        ("train-1", "queued", "waiting for the control process")
    ]
    api.take_up()
    after = api.get("/jobs")["jobs"]
    volatile = {"reason", "created_s"}
    assert [{k: v for k, v in row.items() if k not in volatile} for row in after] == [
        {
            "id": job,
            "seq": 1,
            "name": "train",
            "member": account_name(),
            "project": "default",
            "experiment": "train",
            "state": "queued",
            "class": "training",
            "priority": 0,
            "attempt": 0,
            "started_s": None,
            "ended_s": None,
            "nodes": [],
            "command": "python train.py",
            "step": None,
            "metrics": {}, "diverged": {},
            "primary": None,
            "stalled": None,
            "restarts": {"program": 0, "infrastructure": 0},
            "tags": {"owner": "ann"},
        }
    ]


def test_the_same_key_never_makes_a_second_job(api: Api) -> None:
    first = api.submit(key="k")
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(api.submit(key="k"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {first, *ids} == {"train-1"}
    assert api.submit(key="other") == "train-2"
    assert api.submit() == "train-3"
    cancels = [api.http.post("/jobs/train-2/cancel", headers={"Idempotency-Key": "k"}).json() for _ in range(2)]
    assert cancels == [{"id": "train-2", "state": "queued"}] * 2  # a key counts per verb and object
    rows = api.services.inbox.drain(0, 100)
    assert [row.command for row in rows if isinstance(row.command, CancelJob)] == [CancelJob("train-2", account_name())]


def test_a_batch_is_all_or_nothing(api: Api) -> None:
    good = {"spec": {"command": "true", "name": "many"}}
    answer = api.http.post("/jobs/batch", json={"jobs": [good, {**good, "key": "own"}, good]}, headers={"Idempotency-Key": "b"})
    assert (answer.status_code, answer.json()) == (201, {"ids": ["many-1", "many-2", "many-3"]})
    again = api.http.post("/jobs/batch", json={"jobs": [good, {**good, "key": "own"}, good]}, headers={"Idempotency-Key": "b"})
    assert again.json() == answer.json()
    bad = api.http.post("/jobs/batch", json={"jobs": [good, {"spec": {"comand": "true"}}]})
    assert refused(bad)[:2] == (422, "spec")
    assert refused(bad)[2].startswith("jobs[1]: ")
    assert len(api.get("/jobs")["jobs"]) == 3


def test_jobs_are_found_by_id_prefix_name_and_last(api: Api) -> None:
    api.submit(name="alpha")
    api.take_up()
    api.submit(name="beta")
    found = {ref: api.get(f"/jobs/{ref}")["id"] for ref in ("alpha-1", "al", "alpha", "beta-1", "bet", "beta", "@last")}
    assert found == dict.fromkeys(("alpha-1", "al", "alpha"), "alpha-1") | dict.fromkeys(
        ("beta-1", "bet", "beta", "@last"), "beta-1"
    )
    assert refused(api.http.get("/jobs/gamma"))[:2] == (404, "not_found")
    assert refused(api.http.get("/jobs/@last-failed"))[:2] == (404, "not_found")
    api.submit(name="alpha")
    assert refused(api.http.get("/jobs/alpha-"))[:2] == (409, "conflict")


def test_show_tells_attempts_checkpoints_artifacts_and_that_a_program_does_not_load(api: Api) -> None:
    job = api.submit("python train.py", time_limit="1h")
    api.take_up()
    part = Part(0, "d" * 64, 1, 100)
    failure = Failure(Cause.PROGRAM, "exit 1", rank=0, exit_code=1, last_lines=("boom",))
    again = Verdict(Action.RESTART, State.QUEUED, "restart 1 of 3", 2.0, RestartBudget.PROGRAM, failure)
    done = Verdict(Action.FINISH, State.SUCCEEDED, "all ranks exited 0")
    ranks = (RankEnd(0, exit_code=1),)
    api.control.record(
        job,
        ev.Placed(1, ALLOCATION),
        ev.NodeStarted(1, 0),
        ev.CheckpointStaged(1, "c1", 50, part),
        ev.NodeEnded(1, 0, Outcome(ranks, last_step=60, first_step=1)),
        ev.AttemptEnded(1, again),
    )
    api.control.record(
        job,
        ev.Placed(2, ALLOCATION, ("c1",)),
        ev.NodeStarted(2, 0, restored="c1", step=50),
        ev.ArtifactKept(2, 0, Artifact("out/model", "e" * 64, 7, 2)),
        ev.NodeEnded(2, 0, Outcome((RankEnd(0, exit_code=0),), last_step=90, first_step=1)),
        ev.AttemptEnded(2, done),
    )
    shown = api.get(f"/jobs/{job}")
    picked = ("number", "state", "cause", "message", "exit_code", "signal", "resumed_from_step", "nodes", "last_lines")
    assert [{k: row[k] for k in picked} for row in shown["attempts"]] == [
        {
            "number": 1, "state": "restarted", "cause": "program", "message": "exit 1", "exit_code": 1, "signal": None,
            "resumed_from_step": None, "nodes": ["node0"], "last_lines": ["boom"],
        },
        {
            "number": 2, "state": "succeeded", "cause": None, "message": None, "exit_code": 0, "signal": None,
            "resumed_from_step": 50, "nodes": ["node0"], "last_lines": [],
        },
    ]  # fmt: skip
    assert shown["attempts"][0]["verdict"] == {
        "action": "restart", "reason": "restart 1 of 3", "delay_s": 2.0, "ledger": "program",
    }  # fmt: skip
    assert [(c["id"], c["step"], c["bytes"], c["good"]) for c in shown["checkpoints"]] == [("c1", 50, 100, True)]
    assert shown["artifacts"] == [{"path": "out/model", "kind": "file", "bytes": 7, "digest": "e" * 64, "attempt": 2}]
    assert (shown["state"], shown["step"], shown["time_limit_s"]) == ("succeeded", 90, 3600.0)
    assert shown["work"] == [str(api.home.work(job, "node0"))]
    assert len(shown["notes"]) == 1
    assert shown["notes"][0].startswith("attempt 2 was given a checkpoint, but its steps began again at 1; ")
    assert [(row["resumed_evidence"], row["resumed_because"]) for row in shown["attempts"]] == [
        (None, []),
        ("against", ["its steps began again at 1"]),
    ]
    types = [row["type"] for row in api.get(f"/jobs/{job}/events")["events"]]
    assert types[0] == "Submitted"
    assert types[-1] == "AttemptEnded"
    assert all(row["text"] for row in api.get(f"/jobs/{job}/events")["events"])


def test_what_no_node_can_ever_hold_is_refused_with_what_there_is(api: Api) -> None:
    answer = api.http.post("/jobs", json={"spec": {"command": "true", "resources": {"cpus": 64}}})
    status, code, message = refused(answer)
    assert (status, code) == (422, "impossible")
    assert "4 CPU" in message
    assert api.get("/jobs")["jobs"] == []


def test_commands_wait_behind_their_submit_and_are_seen(api: Api) -> None:
    job = api.submit()
    assert api.http.post(f"/jobs/{job}/hold", json={"reason": "secret: later password=x1"}).json() == {"id": job, "state": "queued"}
    assert api.get(f"/jobs/{job}")["reason"] == "hold requested: secret: later password=(hidden)"
    assert api.http.post(f"/jobs/{job}/release").status_code == 202
    assert api.http.post(f"/jobs/{job}/cancel", json={"reason": "mistake"}).status_code == 202
    assert api.get(f"/jobs/{job}")["reason"] == "cancel requested"
    rows = api.services.inbox.drain(0, 10)
    assert [type(row.command).__name__ for row in rows] == ["SubmitJob", "HoldJob", "ReleaseJob", "CancelJob"]
    assert rows[-1].command == CancelJob(job, account_name(), "mistake")


def test_an_ended_job_is_cancelled_no_more(api: Api) -> None:
    first, second = api.submit(), api.submit()
    api.take_up()
    api.control.record(first, ev.CancelRequested("ada"))
    assert api.get(f"/jobs/{first}")["state"] == "cancelled"
    assert api.http.post(f"/jobs/{first}/cancel").json() == {"id": first, "state": "cancelled"}
    assert refused(api.http.post(f"/jobs/{first}/hold"))[:2] == (409, "conflict")
    assert refused(api.http.post(f"/jobs/{second}/release"))[:2] == (409, "conflict")


def test_nodes_show_their_labels(api: Api) -> None:
    pool = {"nodes": "node*", "labels": {"zone": "a"}, "node_labels": {"node0": {"rack": "r1"}}}
    assert api.http.put("/cluster", json={"cluster": {"pools": {"all": pool}}}).status_code == 202
    assert [node["labels"] for node in api.get("/nodes")["nodes"]] == [{"rack": "r1", "zone": "a"}]


def test_nodes_show_what_is_free(api: Api) -> None:
    job = api.submit()
    api.take_up()
    api.control.record(job, ev.Placed(1, ALLOCATION))
    assert api.get("/nodes")["nodes"] == [
        {
            "name": "node0", "state": "up", "state_reason": "", "pool": "default", "host": "host", "cpus": 4.0,
            "memory_bytes": NODE.memory_bytes, "devices": [], "counted": {}, "virtual": False,
            "free": {"cpus": 3.0, "memory_bytes": NODE.memory_bytes, "devices": [], "gpus": 0, "counted": {}}, "jobs": [job],
            "labels": {},
        }
    ]  # fmt: skip
    answer = api.http.post("/nodes/node0/drain", json={"reason": "fan"})
    assert (answer.status_code, answer.json()) == (202, {"name": "node0", "state": "drained"})
    assert api.services.inbox.drain(0, 10)[-1].command == SetNodeState("node0", NodeState.DRAINED, account_name(), "fan")
    assert refused(api.http.post("/nodes/node9/lost"))[:2] == (404, "not_found")


def test_a_code_copy_is_sent_once_and_a_job_may_then_name_it(api: Api) -> None:
    data = b"print('hello')\n"
    sha256 = hashlib.sha256(data).hexdigest()
    entry = {"path": "train.py", "type": "file", "sha256": sha256, "mode": 0o644, "bytes": len(data)}
    tree: Any = {"entries": [entry]}
    body = {"spec": {"command": "true"}, "code": {"digest": digest(tree), "files": 1, "bytes": len(data)}}
    assert refused(api.http.post("/jobs", json=body))[:2] == (409, "conflict")
    assert api.http.post("/code/missing", json={"tree": tree}).json() == {"digest": digest(tree), "missing": [sha256]}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(sha256, data)
    assert api.http.post("/code", content=packed.getvalue()).json() == {"stored": 1}
    assert api.http.post("/code/missing", json={"tree": tree}).json() == {"digest": digest(tree), "missing": []}
    job = api.http.post("/jobs", json=body).json()["id"]
    assert api.get(f"/jobs/{job}")["code"]["digest"] == digest(tree)


def test_origin_and_code_come_back_as_they_were_given(api: Api) -> None:
    origin = {
        "user": "ann", "host": "laptop", "directory": "/project", "variables": {"PATH": "/bin"}, "git_dirty": True,
        "umask": 0o027, "editable": {"mine": "/src/mine"},
    }  # fmt: skip
    body = {"spec": {"command": ["python", "a b.py"]}, "origin": origin, "code": {"in_place": True}}
    job = api.http.post("/jobs", json=body).json()["id"]
    shown, full_origin, full_code = api.get(f"/jobs/{job}"), Origin(**origin), CodeCopy(in_place=True)  # type: ignore[arg-type]
    assert shown["origin"] == {
        "user": "ann", "host": "laptop", "directory": "/project", "python": "", "variables": {"PATH": "/bin"},
        "git_commit": full_origin.git_commit, "git_dirty": True, "git_remote": None, "git_diff": None, "git_diff_bytes": 0,
        "git_diff_cut": False, "umask": 0o027, "editable": {"mine": "/src/mine"}, "reads_params": None,
    }  # fmt: skip
    assert shown["code"] == {"digest": None, "files": 0, "bytes": 0, "linked": 0, "in_place": full_code.in_place}
    assert shown["command"] == "python 'a b.py'"
    for wrong in ({"umask": 0o1000}, {"umask": "022"}, {"editable": {"mine": 1}}):
        assert refused(api.http.post("/jobs", json={**body, "origin": {**origin, **wrong}}))[:2] == (400, "usage")


def test_watch_answers_when_the_job_changes(api: Api) -> None:
    job = api.submit()
    api.take_up()
    first = api.get(f"/jobs/{job}/watch")
    assert first["job"]["state"] == "queued"
    later = threading.Timer(0.2, lambda: api.control.record(job, ev.Placed(1, ALLOCATION)))
    later.start()
    changed = api.get(f"/jobs/{job}/watch", version=first["version"], wait_s=10)
    later.join()
    assert (changed["job"]["state"], changed["job"]["nodes"]) == ("starting", ["node0"])
    assert api.get(f"/jobs/{job}/watch", version=changed["version"], wait_s=0.1) == changed


def test_events_are_waited_for(api: Api) -> None:
    job = api.submit()
    api.take_up()
    last = api.get(f"/jobs/{job}/events")["events"][-1]["seq"]
    later = threading.Timer(0.2, lambda: api.control.record(job, ev.Held("ann", "wait")))
    later.start()
    events = api.get(f"/jobs/{job}/events", after=last, wait_s=10)["events"]
    later.join()
    assert [(row["type"], row["text"]) for row in events] == [("Held", "held by ann: wait")]


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", small], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        with serving(small / "home") as api:
            first = api.submit()
            ballast = small / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            big = {"spec": {"command": "true", "tags": {f"t{i}": "x" * 100 for i in range(50)}}}
            answer = refused_sooner_or_later(api, big)
            assert refused(answer)[:2] == (507, "disk_full")
            assert answer.headers["retry-after"] == "1"
            assert first in [row["id"] for row in api.get("/jobs", all=1)["jobs"]]
            ballast.unlink()
            assert api.http.post("/jobs", json=big).status_code == 201
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def refused_sooner_or_later(api: Api, body: Any) -> Any:
    """Submit until the disk is full: the log of the database has some room of its own."""
    for _ in range(2000):
        answer = api.http.post("/jobs", json=body)
        if answer.status_code != 201:
            return answer
    raise AssertionError("2,000 submits fitted onto a full disk")


def test_a_fault_of_ours_has_an_id_that_the_log_repeats(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[str]:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(api.runtime.recorded, "nodes", broken)
    answer = api.http.post("/jobs", json={"spec": {"command": "true"}})
    assert refused(answer)[:2] == (500, "operation")
    assert "secret detail" not in answer.text
    assert answer.json()["error"]["request_id"] in caplog.text
    assert api.home.token_file.read_text().strip() not in caplog.text


def test_the_interface_describes_itself(api: Api) -> None:
    document = api.get("/openapi.json")
    paths = {rest.within(path): found for path, found in document["paths"].items()}
    assert {path for path in document["paths"] if not path.startswith("/api/v1/")} == {"/healthz", "/metrics", "/authority"}
    assert {
        "/jobs", "/jobs/batch", "/jobs/{ref}", "/jobs/{ref}/why", "/jobs/{ref}/spec", "/jobs/{ref}/metrics", "/jobs/{ref}/points",
        "/jobs/{ref}/logs", "/jobs/{ref}/events",
        "/jobs/{ref}/watch", "/jobs/cancel", "/jobs/{ref}/cancel",
        "/jobs/{ref}/exec", "/jobs/{ref}/exec/{id}", "/jobs/{ref}/exec/{id}/input", "/jobs/{ref}/exec/{id}/stop", "/jobs/{ref}/exec/{id}/resize", "/jobs/{ref}/hold", "/jobs/{ref}/release", "/compare", "/notes", "/logbook", "/jobs/{ref}/artifacts", "/jobs/{ref}/artifacts/{path}",
        "/jobs/{ref}/requeue", "/jobs/{ref}/reproduce", "/jobs/{ref}/fork", "/jobs/{ref}/provenance", "/jobs/{ref}/diff",
        "/provenance/diffs/{sha256}",
        "/nodes", "/gpus", "/nodes/{name}/drain", "/nodes/{name}/resume", "/nodes/{name}/lost", "/code", "/code/missing", "/healthz", "/storage/verify",
        "/plan", "/queue", "/cluster", "/cluster/plan", "/history", "/storage", "/storage/gc", "/storage/prune", "/jobs/remove", "/usage", "/tickets", "/tokens", "/tokens/{name}", "/me", "/authority", "/metrics", "/troubles", "/events/stream", "/jobs/{ref}/logs/stream",
    } == set(paths)  # fmt: skip
    assert all(operation["summary"] for methods in paths.values() for operation in methods.values())
    text = str(document)
    named = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])
