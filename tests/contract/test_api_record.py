"""REST of a run's record: artifacts by page and kind, comparisons, notes and the logbook."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_server import Api, serving
from waiting import deadline

from trainmaster.client.api import Client
from trainmaster.client.metric_table import metrics_table
from trainmaster.home import account_name
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Artifact, ArtifactKind
from trainmaster.model.commands import TakeNote
from trainmaster.model.job import Action, Outcome, RankEnd, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.ports.blobs import environment_blob
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.ports.store import NewEvent
from trainmaster.server.record import artifacts, comparison, notes
from trainmaster.server.record.command_reading import BY_ITSELF
from trainmaster.store.inbox import SqlInbox
from trainmaster.wire.code import Tree, canonical, digest
from trainmaster.wire.environment import encoded

ALLOCATION = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
DONE = Verdict(Action.FINISH, State.SUCCEEDED, "all ranks exited 0")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def refused(api: Api, path: str, **query: Any) -> tuple[int, str, str]:
    answer = api.http.get(path, params=query)
    error = answer.json()["error"]
    return answer.status_code, error["message"], error["hint"]


def running(api: Api, **spec: Any) -> str:
    job = api.submit(**spec)
    api.take_up()
    api.control.record(job, ev.Placed(1, ALLOCATION), ev.NodeStarted(1, 0))
    return job


def ended(api: Api, job: str) -> None:
    end = ev.NodeEnded(1, 0, Outcome((RankEnd(0, exit_code=0),)))
    api.control.record(job, end, ev.AttemptEnded(1, DONE))


def keep(api: Api, job: str, *names: str, kind: ArtifactKind = ArtifactKind.FILE) -> None:
    api.control.record(job, *(ev.ArtifactKept(1, 0, Artifact(name, "ab" * 32, 3, 1, kind)) for name in names))


def test_artifacts_come_by_page_and_kind(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SHOWN", 2)
    job = running(api)
    keep(api, job, "b", "a", "out/c")
    keep(api, job, "model.pt", kind=ArtifactKind.PICKLE)
    keep(api, job, "b", kind=ArtifactKind.PLOT)
    everything = api.get(f"/jobs/{job}/artifacts")
    assert [(one["path"], one["kind"]) for one in everything["artifacts"]] == [
        ("a", "file"), ("b", "plot"), ("model.pt", "pickle"), ("out/c", "file"),
    ]  # fmt: skip
    assert (everything["id"], everything["total"], everything["bytes"]) == (job, 4, 12)
    assert [one["path"] for one in api.get(f"/jobs/{job}/artifacts", limit=2, after="a")["artifacts"]] == ["b", "model.pt"]
    assert [one["path"] for one in api.get(f"/jobs/{job}/artifacts", kind="plot")["artifacts"]] == ["b"]
    assert [one["path"] for one in api.http.get(f"/jobs/{job}/artifacts?path=out/c").json()["artifacts"]] == ["out/c"]
    assert api.http.get(f"/jobs/{job}/artifacts?path=none").json()["artifacts"] == []
    shown = api.get(f"/jobs/{job}")
    assert ([one["path"] for one in shown["artifacts"]], shown["artifacts_total"]) == (["a", "b"], 4)
    (note,) = [note for note in shown["notes"] if "pickle" in note]
    assert note.startswith("model.pt is a pickle: kept as a file, not as a model")
    assert "safetensors" in note


@pytest.mark.parametrize(
    ("name", "declared", "best"),
    [
        ("accuracy", {}, 4567), ("val/loss", {}, 1234), ("temperature", {}, None),
        ("temperature", {"primary": "temperature", "mode": "max"}, 4567), ("accuracy", {"primary": "loss", "mode": "min"}, 4567),
        ("loss", {"mode": "max"}, 1234),  # of no metric in particular
    ],
)  # fmt: skip
def test_the_best_value_is_that_of_its_name_or_of_the_spec(api: Api, name: str, declared: dict[str, str], best: int | None) -> None:
    """The lowest accuracy was called the best, and the best of the points drawn that of all."""
    job = api.submit(metrics=declared)
    values = [0.5] * 5000
    values[1234], values[4567] = 0.25, 0.75
    points = [MetricPoint(job, 1, 0, step, name, value, 1.0) for step, value in enumerate(values)]
    api.services.metrics.write(points, [])
    told = api.get(f"/jobs/{job}/metrics", name=name)
    expected = {} if best is None else {name: {"step": best, "value": values[best]}}
    assert (len(told["series"][name]) <= 2000, told["best"]) == (True, expected)
    assert api.get(f"/jobs/{job}/metrics")["best"] == {}  # of all metrics at once, it would read everything


def test_an_artifact_is_no_longer_replaced_once_its_job_has_ended(api: Api) -> None:
    job = running(api)
    keep(api, job, "a")
    ended(api, job)
    late = ev.ArtifactKept(1, 0, Artifact("a", "cd" * 32, 9, 1))
    with pytest.raises(ValueError, match="cannot happen"):
        api.control.record(job, late)
    assert [one["digest"] for one in api.get(f"/jobs/{job}/artifacts")["artifacts"]] == ["ab" * 32]


def test_an_artifact_that_a_verification_found_missing_is_said_to_be_so(api: Api) -> None:
    """`tm show` listed it, and offered to download it. That it cannot be downloaded was said until the next verification."""
    job = running(api)
    keep(api, job, "out.pt")
    assert [one["what"] for one in verified(api)["damaged"]] == ["artifact out.pt: missing"]
    (note,) = [note for note in api.get(f"/jobs/{job}")["notes"] if "missing" in note]
    assert note == "artifacts that the last tm storage verify found damaged or missing in the store, if not stored again since: out.pt"


def test_files_of_several_nodes_under_one_name_are_named(api: Api) -> None:
    """The one that came last replaced the other, and nothing said so."""
    job = api.submit()
    api.take_up()
    nodes = tuple(NodeShare(name, "127.0.0.1", 1.0) for name in ("node0", "node1"))
    api.control.record(job, ev.Placed(1, Allocation(nodes)), ev.NodeStarted(1, 0), ev.NodeStarted(1, 1))
    kept = [("same", 0, "a"), ("same", 1, "a"), ("out.txt", 0, "a"), ("own", 0, "a"), ("own", 0, "b"), ("out.txt", 1, "b")]
    api.control.record(job, *(ev.ArtifactKept(1, node, Artifact(name, digest * 64, 3, 1)) for name, node, digest in kept))
    (note,) = api.get(f"/jobs/{job}")["notes"]
    assert note.startswith("nodes stored different files under one name, of which the last that came is kept: out.txt; give")


def verified(api: Api) -> Any:
    assert api.http.post("/storage/verify", json={}).status_code == 202
    return deadline(lambda: found if (found := api.get("/storage/verify"))["ended"] else None, "the verification")


def test_artifacts_come_as_they_were_kept(api: Api) -> None:
    job = api.submit()
    api.take_up()
    data = b"\x00\xffmodel"
    sha256 = hashlib.sha256(data).hexdigest()
    api.services.blobs.put(f"artifacts/{job}/{sha256}", data)
    names = ("out/model.bin", "two\nlines\n", "/etc/x", "a?b#c%20")
    kept = [ev.ArtifactKept(1, 0, Artifact(name, sha256, len(data), 1)) for name in names]
    api.control.record(job, ev.Placed(1, ALLOCATION), ev.NodeStarted(1, 0), *kept)
    for name in names:
        assert api.http.get(f"/jobs/{job}/artifacts/{quote(name)}").content == data, name
    answer = api.http.get(f"/jobs/{job}/artifacts/out/model.bin")
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (200, data, f'"{sha256}"')
    assert api.http.get(f"/jobs/{job}/artifacts/out/other").status_code == 404
    assert api.http.get(f"/jobs/{job}/artifacts/%2e%2e/%2e%2e/token").status_code == 404


def test_an_artifact_that_the_store_lost_is_told_with_what_to_do(api: Api) -> None:
    job = api.submit()
    api.take_up()
    kept = ev.ArtifactKept(1, 0, Artifact("out/a.txt", "ab" * 32, 5, 1))
    api.control.record(job, ev.Placed(1, ALLOCATION), ev.NodeStarted(1, 0), kept)
    answer = api.http.get(f"/jobs/{job}/artifacts/out/a.txt")
    error = answer.json()["error"]
    assert (answer.status_code, error["message"]) == (404, f"the store does not have the artifact 'out/a.txt' of {job}")
    assert error["hint"].endswith("an administrator looks: tm storage verify")


def stored_code(api: Api, **files: bytes) -> dict[str, Any]:
    entries: list[Any] = []
    for name, data in sorted(files.items()):
        sha256 = hashlib.sha256(data).hexdigest()
        api.services.blobs.put(f"code/objects/{sha256[:2]}/{sha256[2:]}", data)
        entries.append({"path": name, "type": "file", "sha256": sha256, "mode": 0o644, "bytes": len(data)})
    tree: Tree = {"entries": entries}
    api.services.blobs.put(f"code/trees/{digest(tree)}.json", canonical(tree))
    return {"digest": digest(tree), "files": len(files)}


def compared(api: Api, *jobs: str, **query: Any) -> Any:
    answer = api.http.get("/compare", params={"job": list(jobs), **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def with_code(api: Api, code: dict[str, Any], **params: Any) -> str:
    spec = {"command": "true", "name": "train", "params": params, "metrics": {"primary": "score", "mode": "max"}}
    job = str(api.http.post("/jobs", json={"spec": spec, "code": code}).json()["id"])
    api.take_up()
    api.control.record(job, ev.Placed(1, ALLOCATION), ev.NodeStarted(1, 0))
    return job


def test_a_comparison_tells_what_differs_and_how_runs_stand(api: Api) -> None:
    one = with_code(api, stored_code(api, a=b"x = 1\n", b=b"same"), lr=0.1, seed=1)
    two = with_code(api, stored_code(api, a=b"x = 2", b=b"same", c=b"\xff"), lr=0.2, seed=1)
    values = {one: [0.1, 0.9, 0.5], two: [0.2, 0.7, 0.6]}
    points = [MetricPoint(job, 1, 0, step, "score", value, 1e9) for job, row in values.items() for step, value in enumerate(row)]
    same = [MetricPoint(job, 1, 0, 1, name, 10.0, 1e9) for job in values for name in ("classes", "val/loss")]
    system = [MetricPoint(one, 1, 0, 1, "system/cpu", 10.0, 1e9)]
    api.services.metrics.write([*points, *same, *system], [])
    found = compared(api, one, two, patch=1)
    told = {(row["section"], row["field"]): row["values"] for row in found["differences"]}
    assert told[("params", "lr")] == [0.1, 0.2]
    assert {field for section, field in told if section == "files"} == {"a", "c"}
    assert ("params", "seed") not in told
    assert found["unknown"] == {name: [one, two] for name in ("python", "packages", "hardware", "machine")}
    (score,) = found["metrics"]
    assert score == {
        "name": "score", "mode": "max", "primary": True, "equal": False, "winner": 0, "diverged": [None, None],
        "last": [{"step": 2, "value": 0.5}, {"step": 2, "value": 0.6}],
        "best": [{"step": 1, "value": 0.9}, {"step": 1, "value": 0.7}],
    }  # fmt: skip
    assert (found["metrics_equal"], found["metrics_last_equal"]) == (["val/loss"], ["classes"])
    assert found["series"] == {"score": [[[0, 0.1], [1, 0.9], [2, 0.5]], [[0, 0.2], [1, 0.7], [2, 0.6]]]}
    assert [(patch["path"], patch["note"]) for patch in found["patches"]] == [("a", ""), ("c", "not text")]
    changed = "@@ -1 +1 @@\n-x = 1\n+x = 2\n\\ No newline at end of file\n"
    assert found["patches"][0]["text"] == f"--- {one}/a\n+++ {two}/a\n{changed}"
    assert [row["name"] for row in compared(api, one, two, metric="system/cpu")["metrics"]] == ["system/cpu"]


def ran_in(api: Api, job: str, host: str = "here") -> Path:
    """Record and store the environment of the first attempt; the file in the store."""
    about = {"driver": None, "driver_cuda": None, "devices": [], "libc": None, "cpu": "c", "cpus": 1, "memory_bytes": 1}
    machine: Any = {"host": host, "system": "s", "kernel": "k", "architecture": "a", **about}
    data = encoded({"python": None, "packages": {}, "editable": [], "torch": None, "machine": machine})
    name = hashlib.sha256(data).hexdigest()
    api.services.blobs.put(environment_blob(name), data)
    api.control.record(job, ev.EnvironmentSeen(1, 0, name))
    path = api.services.blobs.local_path(environment_blob(name))
    assert path is not None
    return Path(path)


def test_what_was_recorded_and_is_lost_or_damaged_is_not_called_unrecorded(api: Api) -> None:
    """Said of it was "nothing is recorded", and of the list of a copy "there is no copy of them"."""
    copies = [stored_code(api, a=b"x"), stored_code(api, a=b"y"), {}]
    jobs = [with_code(api, code) for code in copies]
    ran_in(api, jobs[0]).unlink()
    ran_in(api, jobs[1], host="there").write_bytes(b"{}")
    trees = [Path(api.services.blobs.local_path(f"code/trees/{code['digest']}.json") or "") for code in copies[:2]]
    trees[0].unlink()
    trees[1].write_bytes(b"{}")
    found = compared(api, *jobs)
    assert found["unknown"] == dict.fromkeys(("files", "python", "packages", "hardware", "machine"), jobs)
    reasons = ("the record is lost", "the record is damaged", "nothing is recorded")
    of_files = ("the list of them is lost", "the list of them is damaged", "there is no copy of them")
    records = {name: dict(zip(jobs, reasons, strict=True)) for name in ("python", "packages", "hardware", "machine")}
    assert found["unknown_because"] == {"files": dict(zip(jobs, of_files, strict=True)), **records}
    told = api.http.post(f"/jobs/{jobs[2]}/reproduce", json={}).json()["unequal"]
    assert told == ["environment: nothing is recorded, so packages and machine cannot be compared", BY_ITSELF]


def test_a_reproduction_says_whose_environment_was_compared(api: Api) -> None:
    job = running(api)
    path = ran_in(api, job, host="elsewhere")
    restart = Verdict(Action.RESTART, State.QUEUED, "it failed")
    api.control.record(job, ev.NodeEnded(1, 0, Outcome((RankEnd(0, exit_code=1),))), ev.AttemptEnded(1, restart))

    def told() -> list[str]:
        lines = api.http.post(f"/jobs/{job}/reproduce", json={}, headers={"Idempotency-Key": "x"}).json()["unequal"]
        return [line for line in lines if line.startswith(("host: elsewhere", "environment"))]

    assert len(told()) == 1, "the host alone"
    api.control.record(job, ev.Placed(2, ALLOCATION), ev.NodeStarted(2, 0))
    assert told()[1:] == ["environment: nothing is recorded of attempt 2, so that of attempt 1 was compared"]
    path.unlink()
    assert told()[0] == "environment: the record is lost, so packages and machine cannot be compared"


def test_what_was_measured_before_the_first_step_is_in_the_table_and_may_be_best(api: Api) -> None:
    job = api.submit(name="baseline")
    api.take_up()
    values = [(None, 0.1), (None, 0.2), *((step, 1 - step / 4000) for step in range(1, 2101))]
    api.services.metrics.write([MetricPoint(job, 1, 0, step, "val_loss", value, 1.0) for step, value in values], [])
    assert api.get(f"/jobs/{job}/metrics", name="val_loss")["best"] == {"val_loss": {"step": None, "value": 0.1}}
    with Client(str(api.http.base_url.copy_with(path="/")), api.http.headers["Authorization"].split()[1]) as client:
        table = metrics_table(job, client=client)
        assert table == metrics_table("baseline", "@last", client=client), "a job that is named twice is there once"
    assert list(zip(table["step"], table["value"], strict=True)) == values
    before = api.get(f"/jobs/{job}/points", name="val_loss", stepless=True, limit=1)
    assert (before["points"], before["next"], before["stepless"]) == ([[0, 0.1, 1.0, 1]], 0, True)


def test_a_comparison_that_cannot_be_made(api: Api) -> None:
    one, two = api.submit(), api.submit()
    assert compared(api, one, "@last")["differences"] == []
    assert refused(api, "/compare", job=[one])[:2] == (400, "nothing to compare: one run cannot be compared with itself")
    assert refused(api, "/compare", job=[two, "@last"])[:2] == (400, f"nothing to compare: all of them are {two}")
    assert refused(api, "/compare", job=[one, "train-7"])[:2] == (404, "there is no job 'train-7'")
    assert refused(api, "/compare", job=[one, two], metric="loss") == (
        404, "no run here has a metric 'loss'", "none of them has reported any",
    )  # fmt: skip
    api.services.metrics.write([MetricPoint(one, 1, 0, 1, "loss", 1.0, 1e9)], [])
    assert refused(api, "/compare", job=[one, two], metric="los")[2] == "did you mean loss?"


def note(api: Api, text: str, status: int = 202, **about: str) -> Any:
    answer = api.http.post("/notes", json={"text": text, **about})
    assert answer.status_code == status, answer.text
    return answer.json()


def take_notes(api: Api) -> None:
    """As control does it."""
    inbox = api.services.inbox
    assert isinstance(inbox, SqlInbox)
    cursor = api.control.store.head().inbox_cursor
    for row in inbox.drain(cursor, 100):
        cursor = row.seq
        if isinstance(row.command, TakeNote):
            job, by, text, project, experiment = (getattr(row.command, name) for name in TakeNote.__slots__)
            event = ev.Noted(by, text, row.received_s, project, experiment)
            api.control.commit([NewEvent(job or None, None, event)], {}, cursor=cursor)


def test_notes_are_seen_at_once_and_the_same_once_control_took_them_up(api: Api) -> None:
    first, second = running(api, project="vision"), running(api, project="speech")
    assert note(api, f"like {second}\x1b[0m\r\n", job=first) == {
        "job": first, "project": "vision", "experiment": "train", "by": account_name(), "jobless": False,
    }  # fmt: skip
    note(api, "Secret: of the project --token x1", project="vision")
    note(api, "of the experiment", experiment="train")
    before = api.get("/logbook", notes=1)["entries"]
    assert [(entry["job"], entry["text"], entry["project"], entry["experiment"], entry["links"]) for entry in before] == [
        (first, f"like {second}\\x1b[0m", "vision", "train", [second]),
        (None, "Secret: of the project --token (hidden)", "vision", None, []),
        (None, "of the experiment", "speech", "train", []),
    ]
    take_notes(api)
    assert api.get("/logbook", notes=1)["entries"] == before
    assert [entry["text"] for entry in api.get("/logbook", notes=1, job=first)["entries"]] == [before[0]["text"]]
    assert sorted(entry["kind"] for entry in api.get("/logbook", job=first)["entries"]) == ["note", "start", "submitted"]
    assert len(api.get("/logbook", notes=1, project="vision")["entries"]) == 2
    assert [entry["text"] for entry in api.get("/logbook", notes=1, limit=1)["entries"]] == ["of the experiment"]
    assert "Noted" in [row["type"] for row in api.get(f"/jobs/{first}/events")["events"]]


def test_files_made_to_be_compared_for_hours(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """`difflib` takes over a minute for two files of 200 KB of lines that often come again, and a request may ask for many."""
    monkeypatch.setattr(comparison, "_STEPS_MAX", 50_000)
    slow = [b"".join(b"%d\n" % (n * n * seed % 15_013 % 150) for n in range(2_000)) for seed in (7, 11)]
    one, two = (with_code(api, stored_code(api, a=text, b=b"%d" % at), seed=at) for at, text in enumerate(slow))
    found = compared(api, one, two, patch=1)["patches"]
    assert [(patch["path"], patch["note"]) for patch in found] == [("a", "takes too long to compare"), ("b", "")]


def test_names_that_are_no_jobs_are_not_searched_for(api: Api) -> None:
    """The nearest ids of each of ten thousand names in a note would keep a thread of the server for minutes."""
    first = running(api)
    note(api, f"like none-1, {first[:-2]} and {first}", project="vision")
    assert [entry["links"] for entry in api.get("/logbook", notes=1)["entries"]] == [[first]]


def test_a_note_that_cannot_be_taken(api: Api) -> None:
    assert note(api, " \n", 400, project="vision")["error"]["message"] == "the note is empty"
    assert note(api, "x", 400)["error"]["message"] == "a note is about a job, an experiment or a project"
    assert note(api, "x", 404, job="none")["error"]["code"] == "not_found"
    assert note(api, "x" * 70_000, 400, project="vision")["error"]["message"] == "the note is over 64 KiB"
    assert note(api, "x", 400, project="a\nb")["error"]["code"] == "usage"


def test_the_logbook_of_an_experiment_tells_new_bests(api: Api) -> None:
    one, two, three = (running(api, experiment="digits") for _ in range(3))
    for job, value in ((one, 0.5), (two, 0.7), (three, 0.4)):
        api.services.metrics.write([MetricPoint(job, 1, 0, 5, "loss", value, api.control.now_s)], [])
    best = [entry for entry in api.get("/logbook", experiment="digits")["entries"] if entry["kind"] == "best"]
    assert [(entry["job"], entry["text"]) for entry in best] == [
        (one, "best of digits up to this run: loss 0.5 at step 5"),
        (three, f"best of digits up to this run: loss 0.4 at step 5; of the runs submitted before it: 0.5 by {one}"),
    ]
    assert best[1]["links"] == [one]
    assert [entry["kind"] for entry in api.get("/logbook", job=two)["entries"] if entry["kind"] == "best"] == []


def bests(api: Api, **query: str) -> list[tuple[str, str]]:
    return [(one["job"], one["text"]) for one in api.get("/logbook", **query)["entries"] if one["kind"] == "best"]


def test_a_metric_without_a_direction_has_no_best_in_the_logbook(api: Api) -> None:
    """Of a throughput, 5 was a new best after 10."""
    for value in (10.0, 5.0):
        job = running(api, experiment="th", metrics={"primary": "throughput"})
        api.services.metrics.write([MetricPoint(job, 1, 0, 1, "throughput", value, api.control.now_s)], [])
    assert bests(api, experiment="th") == []


def test_a_best_is_that_of_an_experiment_in_its_project(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logbook of `blue` showed the best of `red`, and never marked its own first."""
    red, blue, again = (running(api, experiment="base", project=project) for project in ("red", "blue", "blue"))
    for job, value in ((red, 0.1), (blue, 0.5), (again, 0.4)):
        api.services.metrics.write([MetricPoint(job, 1, 0, 1, "loss", value, api.control.now_s)], [])
    first = (blue, "best of base up to this run: loss 0.5 at step 1")
    assert bests(api, project="blue", experiment="base") == [
        first, (again, f"best of base up to this run: loss 0.4 at step 1; of the runs submitted before it: 0.5 by {blue}")
    ]  # fmt: skip
    assert bests(api, job=red) == [(red, "best of base up to this run: loss 0.1 at step 1")]
    assert {job for job, _ in bests(api, experiment="base")} == {red, blue, again}
    monkeypatch.setattr(notes, "_JOBS", 1)
    assert bests(api, project="blue", experiment="base") == [(again, "best of base up to this run, among its newest 1 jobs: loss 0.4 at step 1")]
