"""REST: the queue, why a job waits, and what a plan says of those that it would delay."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from api_server import NODE, Api, serving
from waiting import deadline

from trainmaster.model import events as ev
from trainmaster.model.job import Action, Job, Outcome, State, Verdict
from trainmaster.model.nodes import Allocation, Device, NodeShare
from trainmaster.ports.store import NewEvent
from trainmaster.server.jobs import queue, start_estimates


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def test_why_says_the_reason_and_the_place_in_the_queue(api: Api) -> None:
    ids = [api.submit(resources={"cpus": 4}) for _ in range(2)]
    api.take_up()
    urgent = api.submit(resources={"cpus": 4}, priority=5)
    api.take_up()
    why = {job: api.get(f"/jobs/{job}/why") for job in (*ids, urgent)}
    assert {job: (answer["id"], answer["position"], answer["state"]) for job, answer in why.items()} == {
        job: (job, place, "queued") for place, job in enumerate([urgent, *ids], 1)
    }
    assert "number 3 in the queue" in why[ids[1]]["reason"]
    assert [why[job]["ahead"] for job in (urgent, *ids)] == [0, 1, 2]
    assert (why[urgent]["kind"], why[urgent]["needs"]) == ("starting", [])
    assert why[ids[1]]["needs"] == [{"what": "leaves", "name": ids[0]}, {"what": "leaves", "name": urgent}]
    assert why[ids[1]]["text"].endswith(f"It starts once {ids[0]} and {urgent}, ahead of it, have had a turn.")


def test_what_max_running_waits_for_is_told(api: Api) -> None:
    running = api.submit()
    spec = {"command": "true", "name": "train", "max_running": 1}
    free = api.http.post("/plan", json={"spec": spec}).json()
    assert (free["placement"] is not None, free["reason"], free["spec"]["max_running"]) == (True, None, 1)
    api.take_up()
    shares = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
    api.control.record(running, ev.Placed(1, shares), ev.NodeStarted(1, 0))
    user = api.get(f"/jobs/{running}")["member"]
    text = f"waits until none of {user}'s jobs runs or is about to (max_running: 1)"
    now = f"{text}. Now 1 of {user}'s jobs runs or is about to: {running}."
    deadline(lambda: api.http.post("/plan", json={"spec": spec}).json()["reason"] == f"it would be held: {now}", "the plan")
    assert api.http.post("/plan", json={"spec": {**spec, "max_running": 2}}).json()["reason"] is None
    job = api.submit(max_running=1)
    assert (api.get(f"/jobs/{job}")["state"], api.get(f"/jobs/{job}")["reason"]) == ("held", text)
    api.take_up()
    assert api.get(f"/jobs/{job}/why")["text"] == now
    assert api.get("/queue")["held"] == [{"id": job, "project": "default", "member": user, "reason": text}]
    told = api.get(f"/jobs/{job}")
    assert (told["spec"]["max_running"], told["start"]["max_running"]) == (1, 1)
    assert api.http.post("/jobs", json={"spec": {**spec, "max_running": 0}}).status_code == 422
    api.control.record(running, ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, Verdict(Action.FINISH, State.SUCCEEDED, "done")))
    again = api.http.post(f"/jobs/{running}/requeue", json={"changes": {"max_running": 1}}, headers={"Idempotency-Key": "k"})
    assert again.status_code == 201, again.text
    deadline(lambda: api.get(f"/jobs/{again.json()['id']}")["start"] is not None, "its start conditions")


def test_the_queue_is_told_in_order_and_by_the_page(api: Api) -> None:
    ids = [api.submit(resources={"cpus": 4}, time_limit="1h", project=project) for project in ("a", "b", "a")]
    api.take_up()
    asked = {"limit=2": ids[:2], "limit=2&after=2": ids[2:], "project=a": [ids[0], ids[2]], "project=c": []}
    found = {query: api.http.get(f"/queue?{query}").json() for query in asked}
    assert {query: [job["id"] for job in answer["jobs"]] for query, answer in found.items()} == asked
    assert [answer["total"] for answer in found.values()] == [3, 3, 2, 0]
    assert [(job["position"], job["asks"]) for job in found["project=a"]["jobs"]] == [(1, "4 CPUs"), (3, "4 CPUs")]
    starts = [job["eta_s"]["p50"] for job in api.get("/queue")["jobs"]]
    assert starts == [0.0, 3600.0, 7200.0], "nobody knows better than their limits"
    assert api.http.get("/queue?limit=0").status_code == 400


def test_estimates_of_a_long_queue_serve_for_a_while(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were made anew whenever something was written: 200 ms of processor time with 50 waiting."""
    monkeypatch.setattr(start_estimates, "_CHEAP_S", 0.0)
    monkeypatch.setattr(start_estimates, "_REST", 1e6)
    monkeypatch.setattr(queue, "time", SimpleNamespace(time=lambda: now_s))
    now_s = time.time()

    def told(limit: int = 50) -> dict[str, float | None]:
        jobs = api.get("/queue", limit=limit)["jobs"]
        return {job["id"]: None if job["eta_s"] is None else job["eta_s"]["p50"] for job in jobs}

    first, second = (api.submit(resources={"cpus": 4}, time_limit="1h") for _ in range(2))
    api.take_up()
    assert told() == {first: 0.0, second: 3600.0}
    api.submit(resources={"cpus": 4}, time_limit="1h")
    api.control.record(first, ev.CancelRequested("", ""))
    now_s += 600.0
    api.take_up()
    assert told() == {second: 3000.0, "train-3": None}
    assert told(limit=49) == {second: 0.0, "train-3": 3600.0}, "another page has estimates of its own"


def test_the_queue_reads_each_ended_job_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 100 ms of processor time for the last 1,000 jobs, at every request, with nothing waiting."""
    read: list[int] = []
    over_since = api.services.events.over_since

    def watched(count: int) -> tuple[int, list[Job]]:
        found = over_since(count)
        read.append(len(found[1]))
        return found

    def end(job: str) -> None:
        api.take_up()
        api.control.record(job, ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
        api.control.record(job, ev.NodeEnded(1, 0, Outcome(ran_s=60.0)))
        api.control.record(job, ev.AttemptEnded(1, Verdict(Action.FINISH, State.SUCCEEDED, "done")))

    monkeypatch.setattr(api.services.events, "over_since", watched)
    monkeypatch.setattr(start_estimates, "_CHEAP_S", 60.0)  # on a slow machine, too
    for count in (1, 2):
        end(api.submit())
        assert api.get("/queue")["jobs"] == []
        assert sum(read) == count - 1, "an empty queue asks for none"
        waits = api.submit()
        learned = [api.get("/queue")["jobs"][0]["eta_s"]["jobs"] for _ in range(2)]
        assert (learned, sum(read)) == ([count] * 2, count)
        api.take_up()
        api.control.record(waits, ev.CancelRequested("", ""))


def test_a_plan_notes_that_nobody_is_there_with_whom_it_would_be(api: Api) -> None:
    spec = {"command": "true", "placement": {"with": "digits"}}
    alone = api.http.post("/plan", json={"spec": spec}).json()["notes"]
    assert alone == ["placement.with: no job that waits or runs is called 'digits' or says the same: it means nothing so far"]
    other = api.submit(placement={"with": "digits"})
    api.take_up()
    assert api.http.post("/plan", json={"spec": spec}).json()["notes"] == [], "that one says the same"
    named = {**spec, "placement": {"with": other}}
    assert api.http.post("/plan", json={"spec": named}).json()["notes"] == [], "and is called so"


def test_what_means_nothing_here_is_noted_by_a_plan_and_at_submit(api: Api) -> None:
    gpus = tuple(Device(number, "h100") for number in range(2))
    node = replace(NODE, devices=gpus)
    api.control.commit([NewEvent(None, None, ev.NodeSeen(node))], {}, (node,))
    deadline(lambda: api.runtime.recorded.nodes()[0].devices == gpus, "the node is known")
    sparse = {"name": "a", "resources": {"gpus": ["h100:1", "v100:2", "h100:4"]}, "placement": {"prefer": "rak", "near": "imagnet"}}
    notes = [
        "one of its choices is never taken here: it asks for GPUs of kind v100; those here are of kind h100",
        "one of its choices is never taken here: it asks for 4 h100 GPUs, 1 CPU on one node; no node has more than 2 h100 GPUs",
        "placement.prefer: no node has the label 'rak'; there is none",
        "placement.near: no node has the data 'imagnet'; there is none",
    ]
    plain = {"name": "b", "resources": {"gpus": "h100:1"}, "placement": {"prefer": "host", "near": "checkpoint"}}
    for spec, told in ((sparse, notes), (plain, [])):
        body = {"spec": {"command": "true", **spec}}
        assert [api.http.post(path, json=body).json()["notes"] for path in ("/plan", "/jobs")] == [told, told]


def test_a_mail_that_the_server_cannot_send_is_noted(api: Api) -> None:
    told = "notify: nothing is sent to ada@example.com: the server has no mail server: [notify] smtp in server.toml"
    spec = {"command": "true", "notify": ["ada@example.com", "https://chat.example.com/hook"]}
    for body in ({"spec": spec}, {"spec": spec, "hold": "held at submit"}):
        assert [api.http.post(path, json=body).json()["notes"] for path in ("/plan", "/jobs")] == [[told], [told]]
    assert api.http.post("/jobs", json={"spec": {**spec, "notify": "run:true"}}).json()["notes"] == []


def test_node_labels_that_no_node_of_the_pool_gets_are_noted(api: Api) -> None:
    labels = {"node0": {"rack": "r1"}, "node[45]": {"rack": "r2"}}
    rules = {"pools": {"all": {"nodes": "node*", "node_labels": labels}}}
    told = api.http.post("/cluster/plan", json={"cluster": rules}).json()["words"]
    assert told == ["pool all: node_labels: none of its nodes matches node[45]"]


def test_jobs_that_wait_in_a_class_that_is_taken_away_are_noted(api: Api) -> None:
    both = {"cluster": {"classes": {"nightly": {}, "weekly": {}}}}
    assert api.http.put("/cluster", json=both).json()["words"] == []
    first, second = api.submit(**{"class": "nightly"}), api.submit(**{"class": "nightly"})
    told = f"class nightly is removed, and {first}, {second} wait in it: its jobs get a class's defaults (priority 0)"
    for ask in (lambda body: api.http.post("/cluster/plan", json=body), lambda body: api.http.put("/cluster", json=body)):
        assert ask(both).json()["words"] == []
        assert ask({"cluster": {}}).json()["words"] == [told]


def test_maintenance_that_is_over_is_noted(api: Api) -> None:
    windows = ["2020-01-01T10:00+01:00/2h", "2999-01-01T10:00/2h", "daily 03:00/30m"]
    rules = {"pools": {"all": {"nodes": "node*", "maintenance": windows}}}
    told = api.http.post("/cluster/plan", json={"cluster": rules}).json()["words"]
    assert told == ["pool all: the maintenance of 2020-01-01T09:00/2h (UTC) is past and has no effect"]


def test_a_plan_tells_whom_it_would_delay(api: Api) -> None:
    api.control.now_s = time.time()  # who has waited for weeks goes before every class
    first = api.submit(resources={"cpus": 4}, time_limit="1h")
    api.take_up()
    spec = {"command": "true", "resources": {"cpus": 4}, "time_limit": "2h"}
    behind = api.http.post("/plan", json={"spec": spec}).json()
    assert (behind["placement"], behind["position"], behind["delays"], behind["cost"]) == (None, 2, [], None)
    assert behind["eta_s"]["p50"] == 3600.0
    before = api.http.post("/plan", json={"spec": {**spec, "class": "interactive"}}).json()
    assert (before["position"], before["eta_s"]) == (1, None), "it starts at once"
    assert before["delays"] == [{"job": first, "by_s": 7200.0}]
