"""What is asked for again and again: 304 while nothing changed, never an older answer than what was accepted or recorded."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api_server import Api, serving

from trainmaster.client.connection import Call, Connection
from trainmaster.model import events as ev
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.ports.metric_store import MetricPoint


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def again(api: Api, tag: str, path: str = "/jobs") -> httpx.Response:
    return api.http.get(path, headers={"If-None-Match": tag})


def tag_of(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status
    assert (answer.content == b"") is (status == 304)
    return answer.headers["etag"]


def test_a_list_is_sent_again_where_it_changed_alone(api: Api) -> None:
    tag = tag_of(api.http.get("/jobs"), 200)
    tag = tag_of(again(api, tag), 304)
    job = api.submit()
    tag = tag_of(again(api, tag), 200)
    api.take_up()
    assert again(api, tag).json()["jobs"][0]["reason"] != "waiting for the control process"
    shares = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
    api.control.record(job, ev.Placed(1, shares), ev.NodeStarted(1, 0))
    changed = again(api, tag)
    assert [row["state"] for row in changed.json()["jobs"]] == ["running"]
    tag = tag_of(changed, 200)
    api.services.metrics.write([MetricPoint(job, 1, 0, 7, "loss", 0.5, 1.0)], [])
    changed = again(api, tag)
    assert changed.json()["jobs"][0]["metrics"] == {"loss": 0.5}
    tag = tag_of(changed, 200)
    newer = tag_of(again(api, "W/" + tag), 304)
    assert tag_of(again(api, f'"other", {newer}'), 304)


def test_what_was_written_may_be_nothing_to_this_list(api: Api) -> None:
    api.submit(project="vision")
    tag = tag_of(api.http.get("/jobs?project=vision"), 200)
    api.submit(project="speech")
    newer = tag_of(again(api, tag, "/jobs?project=vision"), 304)
    assert newer != tag
    assert tag_of(again(api, newer, "/jobs?project=speech"), 200), "a tag is of one list"


def test_the_tag_of_another_server_means_nothing(api: Api, tmp_path: Path) -> None:
    tag = tag_of(api.http.get("/jobs"), 200)
    with serving(tmp_path / "other") as other:
        other.submit()
        assert tag_of(again(other, tag), 200)


def test_a_client_that_asks_again_has_the_list_and_what_is_new(api: Api) -> None:
    connection = Connection(str(api.http.base_url), api.home.token_file.read_text().strip())
    lists = []
    for _ in range(2):
        api.submit()
        lists += [connection.json_again(Call("GET", "/jobs", {"limit": 50})) for _ in range(3)]
    connection.close()
    assert [[job["id"] for job in one["jobs"]] for one in lists] == [["train-1"]] * 3 + [["train-2", "train-1"]] * 3
    assert json.dumps(lists[3]) == json.dumps(lists[5])


def test_the_queue_is_never_older_than_what_was_accepted(api: Api) -> None:
    for count in range(3):
        assert [api.get("/queue")["total"] for _ in range(2)] == [count] * 2
        job = api.submit()
        api.get("/queue")
        api.take_up()
        assert api.get("/queue")["jobs"][-1]["id"] == job
