"""`GET /history`: every job with its attempts, in the form that the simulator reads, whole however many there are."""

import json
from pathlib import Path
from random import Random

import pytest
from api_server import NODE, Api, serving

from trainmaster.model import events as ev
from trainmaster.model.job import Outcome, RankEnd
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.recovery.restart_policy import verdict_of
from trainmaster.server.cluster import history_export
from trainmaster.simulator.formats import load

SHARE = Allocation((NodeShare(NODE.name, NODE.address, 1.0),))
KILLED, WELL = RankEnd(0, signal=9), RankEnd(0, exit_code=0)


@pytest.fixture
def api(tmp_path: Path) -> object:
    with serving(tmp_path / "home") as served:
        yield served


def attempt(api: Api, id: str, number: int, how: RankEnd) -> None:
    """One attempt from placement to verdict; control's clock goes on by a second with each record."""
    control = api.control
    control.record(id, ev.Placed(number, SHARE))
    control.record(id, ev.NodeStarted(number, 0))
    job = control.record(id, ev.NodeEnded(number, 0, Outcome((how,))))
    control.record(id, ev.AttemptEnded(number, verdict_of(job, Random(0))))


def test_the_history_has_every_job_and_every_attempt(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_export, "_PAGE", 2)
    ids = [api.submit(f"python train.py --secret {n}", project="vision", resources={"cpus": 2}) for n in range(5)]
    api.take_up()
    for id in ids[:3]:
        attempt(api, id, 1, WELL)
    attempt(api, ids[3], 1, KILLED)
    attempt(api, ids[3], 2, WELL)
    answer = api.http.get("/history")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert "secret" not in answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["name"] for one in told[0]["nodes"]] == [NODE.name]
    assert [(one["id"], len(one["attempts"])) for one in told[1:]] == list(zip(ids[::-1], [0, 2, 1, 1, 1], strict=True))
    file = tmp_path / "history.jsonl"
    file.write_text(answer.text)
    trace = load(file)
    assert [one.id for one in trace.arrivals] == ids[:4]
    assert [(one.project, one.ask.each.cpus, one.run_s, len(one.tries)) for one in trace.arrivals[2:]] == [
        ("vision", 2000, 2.0, 0), ("vision", 2000, 4.0, 2),
    ]  # fmt: skip
    assert (trace.sites[0].name, trace.sites[0].cell.cpus, trace.passed) == (NODE.name, 4000, 1)


def test_the_history_of_nothing_is_its_heading(api: Api) -> None:
    assert [json.loads(line)["form"] for line in api.http.get("/history").text.splitlines()] == ["trainmaster-history"]
