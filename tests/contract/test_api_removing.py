"""`POST /jobs/remove` and `POST /storage/prune`: what would go is told before it does, and control is asked to record it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import Api, serving
from waiting import deadline

from trainmaster import troubles
from trainmaster.control.clock import date_and_steady_s
from trainmaster.model import events as ev
from trainmaster.model.cluster import DAY_S
from trainmaster.model.commands import GiveUpBytes
from trainmaster.model.job import Action, Outcome, RankEnd, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.server.storage import retention
from trainmaster.wire.processes import boot_id


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api") / "home") as made:
        yield made


def over(api: Api) -> str:
    """A job that was cancelled, with something left of it."""
    job = api.submit()
    api.take_up()
    api.control.record(job, ev.CancelRequested("ann"))
    work = api.home.work(job, "node0")
    work.mkdir(parents=True)
    (work / "model.pt").write_bytes(b"x" * 100_000)
    return job


def orders(api: Api) -> list[GiveUpBytes]:
    rows = api.services.inbox.pending(0)
    return [row.command for row in rows if isinstance(row.command, GiveUpBytes)]


def test_jobs_that_are_over_are_removed_after_a_look(api: Api) -> None:
    """L4: there was no way to remove a job."""
    job, live = over(api), api.submit()
    body = {"jobs": [job, live, "nobody-7"], "dry_run": True}
    answer = api.http.post("/jobs/remove", json=body).json()
    going, *refused = answer["jobs"]
    assert (going["id"], going["kinds"]) == (job, ["work", "metrics"])
    assert going["bytes"]["work"] >= 100_000
    assert [one["error"]["code"] for one in refused] == ["conflict", "not_found"]
    assert orders(api) == []
    api.http.post("/jobs/remove", json={"jobs": [job], "kinds": ["work"]})
    assert [(one.job, one.kinds) for one in orders(api)] == [(job, ("work",))]
    api.control.record(job, ev.BytesGivenUp("ann", ("work", "logs")))
    detail = api.get(f"/jobs/{job}")
    assert ("being removed to make room: its work, logs; last ordered by ann" in detail["notes"], detail["removed"]) == (
        True, ["work", "logs"]
    )  # fmt: skip
    assert api.http.get(f"/jobs/{job}/logs").status_code == 404
    again = api.http.post("/jobs/remove", json={"jobs": [job], "kinds": ["work"], "dry_run": True}).json()
    assert (again["jobs"][0]["kinds"], again["jobs"][0]["going"]) == ([], ["work"])
    api.control.record(job, ev.BytesRemoved("work", 7))
    assert "removed to make room: its work; being removed to make room: its logs; last ordered by ann" in (
        api.get(f"/jobs/{job}")["notes"]
    )
    assert api.get(f"/jobs/{job}/artifacts")["removed"] is False
    api.control.record(job, ev.BytesGivenUp("ann", ("artifacts",)))
    assert api.get(f"/jobs/{job}/artifacts")["removed"] is True


def test_no_run_is_the_best_beside_one_whose_points_were_removed(api: Api) -> None:
    """The best of the others was marked as the best, and called so in the logbook."""
    values = {over(api): [0.5, 0.1, 0.3], over(api): [0.5, 0.2, 0.4], over(api): [0.6, 0.3, 0.25]}
    points = [MetricPoint(job, 1, 0, at, "loss", value, 1e9) for job, mine in values.items() for at, value in enumerate(mine)]
    api.services.metrics.write(points, [])
    first, *others = values
    assert [one["winner"] for one in api.get("/compare", job=[first, *others])["metrics"]] == [0]
    api.control.record(first, ev.BytesGivenUp("ann", ("metrics",)))
    api.services.metrics.thin(first, 0)
    found = api.get("/compare", job=[first, *others])
    assert [(one["winner"], one["equal"]) for one in found["metrics"]] == [(None, False)]
    assert f"all but the last values of metrics: their points were removed ({first})" in found["not_compared"]
    (best,) = [one["text"] for one in api.get("/logbook", experiment="train")["entries"] if one["kind"] == "best"]
    assert best == "best of train up to this run, among those whose points are all on record: loss 0.2 at step 1"


def test_no_run_is_the_best_beside_one_of_which_not_all_is_read(api: Api) -> None:
    """A minimum of -5 stood in output that was not searched, and 0 was marked as the best."""
    first = api.submit()
    api.take_up()
    api.control.record(first, ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
    second = over(api)
    points = [MetricPoint(job, 1, 0, at, "loss", value, 1e9) for at, job, value in ((1, first, 0.0), (1, second, 0.5))]
    api.services.metrics.write(points, [])
    assert [one["winner"] for one in api.get("/compare", job=[first, second])["metrics"]] == [0]
    api.control.record(first, ev.Warned(1, 0, "output", "9 bytes of output were not searched", 2))
    found = api.get("/compare", job=[first, second])
    assert [(one["winner"], one["equal"]) for one in found["metrics"]] == [(None, False)]
    assert f"all values of metrics: 9 bytes of output were not searched ({first})" in found["not_compared"]


def test_values_that_only_another_rank_has_since_a_restart_are_named(api: Api) -> None:
    first, other = api.submit(), api.submit()
    api.take_up()
    placed = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
    for job in (first, other):
        api.control.record(job, ev.Placed(1, placed), ev.NodeStarted(1, 0))
    again = Verdict(Action.RESTART, State.QUEUED, "restart 1 of 3", 2.0)
    api.services.metrics.write([MetricPoint(job, 1, 0, 1, "loss", value, 1.0) for job, value in ((first, 0.5), (other, 0.6))], [])
    notes = api.get(f"/jobs/{first}")["notes"]
    end = ev.NodeEnded(1, 0, Outcome((RankEnd(0, exit_code=1),)))
    api.control.record(first, end, ev.AttemptEnded(1, again), ev.Placed(2, placed), ev.NodeStarted(2, 0))
    api.services.metrics.write([MetricPoint(first, 2, 1, 2, "loss", 0.1, 2.0)], [])
    told = "values that only another rank has since a restart are not shown: loss"
    assert api.get(f"/jobs/{first}")["notes"] == [*notes, told]
    compared = api.get("/compare", job=[first, other])
    assert f"{told} ({first})" in compared["not_compared"]
    assert [one["winner"] for one in compared["metrics"]] == [None]


def test_that_curves_were_thinned_is_said(api: Api) -> None:
    """Those that were left were called all points."""
    job = over(api)
    for name in ("loss", "lr"):
        api.services.metrics.write([MetricPoint(job, 1, 0, step, name, 1 / (step + 1), 1e9) for step in range(1000)], [])
    left = 2000 - api.services.metrics.thin(job, 100)
    told = f"its curves were thinned to free space: {2000 - left:,} points are gone; of each curve, the first, the best and the last stay"
    assert told in api.get(f"/jobs/{job}")["notes"]
    assert api.services.metrics.thin(job, 100) == 0
    assert told in api.get(f"/jobs/{job}")["notes"]
    api.control.record(job, ev.BytesGivenUp("ann", ("metrics",)))
    api.services.metrics.thin(job, 0)
    assert not [note for note in api.get(f"/jobs/{job}")["notes"] if "thinned" in note]


def test_what_cannot_be_read_is_something_to_remove(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no size, so "there is nothing to remove" was said of it."""
    job = over(api)

    def refused(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: refused(path) if path.name == job else listed(path))
    body = {"jobs": [job], "kinds": ["work", "logs"], "dry_run": True}
    (going,) = api.http.post("/jobs/remove", json=body).json()["jobs"]
    assert (going["kinds"], going["bytes"], going["unread"]) == (["work"], {}, ["work"])
    assert {one["kind"]: one["unread"] for one in api.get("/storage")["disk"]}["work"] == 1


def test_old_jobs_are_pruned_but_for_the_newest(api: Api) -> None:
    """L4: and only of the kinds that are named."""
    old, new = over(api), over(api)
    answer = api.http.post("/storage/prune", json={"older_than_s": 0, "keep": 1, "dry_run": True}).json()
    assert old in [one["id"] for one in answer["jobs"]]
    assert new not in [one["id"] for one in answer["jobs"]]
    assert all(one["kinds"] == ["work"] for one in answer["jobs"])
    assert not answer["more"]
    body = {"older_than_s": 0, "kinds": ["checkpoints"], "dry_run": True}
    assert api.http.post("/storage/prune", json=body).json()["jobs"] == []


def test_everything_on_the_disk_is_told_with_the_largest_jobs(api: Api) -> None:
    job = over(api)
    found = api.get("/storage")
    assert {"work", "events.db", "metrics.db"} <= {one["kind"] for one in found["disk"]}
    assert job in [one["job"] for one in found["largest"]]
    assert found["free_bytes"] > 0


def test_a_clock_that_jumped_ahead_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removed the work directories and logs of all ended jobs."""
    monkeypatch.setattr(retention, "_FIRST_S", 0.0)
    monkeypatch.setattr(retention, "_EVERY_S", 0.0)
    monkeypatch.setattr(retention, "LOOK_S", 0.02)
    note = tmp_path / "home" / "retention.json"
    note.parent.mkdir()
    date_s, steady_s = date_and_steady_s()
    known = {"boot_id": boot_id(), "date_s": date_s - 60 * DAY_S, "steady_s": steady_s, "doubted_s": None}
    note.write_text(json.dumps(known))
    with serving(tmp_path / "home") as api:
        api.control.now_s = time.time() - 40 * DAY_S
        job = over(api)
        deadline(lambda: "retention" in [one.topic for one in troubles.own.said()], "the retention to look")
        known_s = json.loads(note.read_text())["steady_s"]
        deadline(lambda: json.loads(note.read_text())["steady_s"] > known_s, "it to look again")
        assert orders(api) == []

        def believed() -> bool:
            note.unlink(missing_ok=True)  # nothing was noted
            return [one.job for one in orders(api)] == [job]

        deadline(believed, "the old work to be removed")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs/remove", {"jobs": []}),
        ("/jobs/remove", {"jobs": ["a"], "kinds": ["record"]}),
        ("/jobs/remove", {"jobs": ["a"], "dry_run": 1}),
        ("/storage/prune", {"older_than_s": -1}),
        ("/storage/prune", {"keep": "x"}),
    ],
)
def test_what_makes_no_sense_is_refused(api: Api, path: str, body: dict[str, object], tmp_path: Path) -> None:
    assert api.http.post(path, json=body).status_code == 400
