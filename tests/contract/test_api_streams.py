"""Server-sent events with tickets, gauges for Prometheus, and what would become of a job."""

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_server import NODE, Api, Http, serving
from waiting import deadline

from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.nodes import Allocation, NodeShare, NodeState
from trainmaster.ports.store import NewEvent
from trainmaster.server.process import idle_stop
from trainmaster.server.process.background import supervised
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.store.events import ChainRow, chain_hash

SHARES = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        served.submit()
        served.take_up()
        yield served


class Listening:
    """One stream, read in a thread until it is closed."""

    def __init__(self, api: Api, path: str, **headers: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 0
        self.closed = False
        self._client = Http(base_url=api.http.base_url, headers=headers, timeout=30.0)
        self._path = path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._client.stream("GET", self._path) as response:
                self.status = response.status_code
                message: dict[str, Any] = {}
                for line in response.iter_lines():
                    name, _, value = line.partition(": ")
                    if name in ("id", "event"):
                        message[name] = value
                    elif name == "data":
                        message["data"] = json.loads(value)
                    elif not line and message:
                        self.messages.append(message)
                        message = {}
        except httpx.HTTPError:
            pass
        self.closed = True


def ticket(api: Api) -> str:
    answer = api.http.post("/tickets")
    assert answer.status_code == 201
    return str(answer.json()["ticket"])


def test_events_of_all_jobs_are_streamed_and_gone_on_with(api: Api) -> None:
    stream = Listening(api, f"/events/stream?after=0&ticket={ticket(api)}")
    deadline(lambda: len(stream.messages) == 2, "what was there")
    assert [(one["event"], one["data"]["job"]) for one in stream.messages] == [("NodeSeen", None), ("Submitted", "train-1")]
    api.control.record("train-1", ev.Held("ada", "later"))
    deadline(lambda: len(stream.messages) == 3, "what happens")
    last = stream.messages[-1]
    assert (last["event"], last["data"]["text"]) == ("Held", "held by ada: later")
    again = Listening(api, f"/events/stream?ticket={ticket(api)}", **{"Last-Event-ID": stream.messages[1]["id"]})
    deadline(lambda: len(again.messages) == 1, "only what came after")
    assert again.messages == [last]


def test_a_credential_of_a_job_is_hidden_in_what_its_program_logs(api: Api) -> None:
    job = api.submit("t.py --api-key S3cret-key")
    api.take_up()
    stream = Listening(api, f"/events/stream?after=0&ticket={ticket(api)}")
    api.control.record(job, ev.Placed(1, SHARES), ev.RunDataLogged(1, 0, {"used": "S3cret-key", "lr": "0.1"}, {}))
    deadline(lambda: len(stream.messages) == 5, "what it logged")
    (event,) = (one for one in api.get(f"/jobs/{job}/events")["events"] if one["type"] == "RunDataLogged")
    assert stream.messages[-1]["data"] == {"job": job, **event}
    assert event["data"]["params"] == {"used": "(hidden)", "lr": "0.1"}


def test_an_event_that_cannot_be_read_ends_nothing_and_news_of_nodes_come_at_once(api: Api) -> None:
    """R24: one of a newer version ended every stream for ever, and those of no job came with the next word of life."""
    with contextlib.closing(sqlite3.connect(api.home.events_db)) as log:
        seq, now_s, before = log.execute("SELECT last_seq, last_now_s, last_hash FROM head").fetchone()
        row = ChainRow(seq + 1, now_s, "train-1", None, "Dreamt", '{"x":1}', "")
        row = row._replace(hash=chain_hash(before, row))
        log.execute("INSERT INTO event (seq, now_s, job, attempt, type, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(row))
        log.execute("UPDATE head SET last_seq = ?, last_hash = ?", (row.seq, row.hash))
        log.commit()
    stream = Listening(api, f"/events/stream?after={seq - 1}&ticket={ticket(api)}")
    deadline(lambda: [one["event"] for one in stream.messages][-1:] == ["Dreamt"], "the event of another version")
    assert "cannot read" in stream.messages[-1]["data"]["text"]
    drained = NewEvent(None, None, ev.NodeStateSet("node0", NodeState.DRAINED, "ada"))
    since_s = time.monotonic()
    api.control.commit([drained], {}, (replace(NODE, state=NodeState.DRAINED),))
    deadline(lambda: stream.messages[-1]["event"] == "NodeStateSet", "the node's")
    assert time.monotonic() - since_s < 10.0
    api.control.record("train-1", ev.Held("ada", "later"))
    deadline(lambda: stream.messages[-1]["event"] == "Held", "what comes behind it")
    types = [event["type"] for event in api.get("/jobs/train-1/events")["events"]]
    assert types == ["Submitted", "Dreamt", "Held"]


def test_a_stream_needs_a_ticket_or_a_token_and_a_ticket_opens_nothing_else(api: Api) -> None:
    bare = Http(base_url=api.http.base_url)
    assert bare.get("/events/stream").status_code == 401
    assert bare.get("/events/stream?ticket=made-up").status_code == 401
    assert bare.get(f"/jobs?ticket={ticket(api)}").status_code == 401
    # S9: nor a job that is called `stream`, nor what a path that merely ends so leads to
    for path in ("/jobs/stream", "/jobs/x/artifacts/stream", "/jobs/x/artifacts/logs/stream"):
        assert bare.get(f"{path}?ticket={ticket(api)}").status_code == 401
    assert api.http.get("/events/stream", headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_log_is_streamed_to_its_end(api: Api) -> None:
    path = api.home.attempt("train-1", 1, 0) / "rank0.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    api.control.record("train-1", ev.Placed(1, SHARES, ()))
    stream = Listening(api, f"/jobs/train-1/logs/stream?ticket={ticket(api)}")
    deadline(lambda: bool(stream.messages), "the first line")
    with path.open("a") as log:
        log.write("two\n")
    deadline(lambda: "".join(one["data"]["text"] for one in stream.messages) == "one\ntwo\n", "the second line")
    again = Listening(api, f"/jobs/train-1/logs/stream?ticket={ticket(api)}", **{"Last-Event-ID": stream.messages[0]["id"]})
    deadline(lambda: [one["data"]["text"] for one in again.messages] == ["two\n"], "only the second line")


def test_a_log_stream_gives_nothing_more_to_a_token_that_was_revoked(api: Api) -> None:
    path = api.home.attempt("train-1", 1, 0) / "rank0.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    api.control.record("train-1", ev.Placed(1, SHARES, ()))
    token = api.http.post("/tokens", json={"name": "eve"}).json()["token"]
    stream = Listening(api, "/jobs/train-1/logs/stream", Authorization=f"Bearer {token}")
    deadline(lambda: bool(stream.messages), "the first line")
    assert api.http.delete("/tokens/eve").status_code == 200
    with path.open("a") as log:
        log.write("two\n")
    deadline(lambda: stream.closed, "the end of the stream")
    *before, last = stream.messages
    assert [one["data"]["text"] for one in before] == ["one\n"]
    assert last["event"] == "closed"


@pytest.mark.parametrize("path", ["/jobs/train-1/logs/stream", "/events/stream"])
def test_a_stream_in_which_nothing_happens_is_closed_with_a_word(api: Api, path: str) -> None:
    """It was closed at the next word of life, up to 15 s later, and without one."""
    token = api.http.post("/tokens", json={"name": "eve"}).json()["token"]
    stream = Listening(api, path, Authorization=f"Bearer {token}")
    deadline(lambda: stream.status == 200, "the stream to be open")
    assert api.http.delete("/tokens/eve").status_code == 200
    deadline(lambda: stream.closed, "the end of the stream", 10.0)
    assert stream.messages == [{"event": "closed", "data": {"reason": "the token was revoked or has expired"}}]


def test_gauges(api: Api) -> None:
    text = api.http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values['trainmaster_jobs{state="queued"}'] == "1.0"
    assert values['trainmaster_node_free_cpus{node="node0"}'] == str(NODE.cpus)
    assert values['trainmaster_pool_free_gpus{pool="default"}'] == "0.0"
    assert values['trainmaster_pool_largest_gang_gpus{pool="default"}'] == "0.0"
    assert values["trainmaster_events_total"] == "2.0"
    assert httpx.get(f"{api.http.base_url}/metrics").status_code == 401


def test_a_plan_is_the_schedulers_own_decision_and_submits_nothing(api: Api) -> None:
    def plan(**resources: Any) -> Any:
        return api.http.post("/plan", json={"spec": {"command": "python train.py", "resources": resources}})

    now = plan(cpus=2).json()
    assert now["placement"] == [{"node": "node0", "cpus": 2.0, "memory_bytes": 0, "devices": [], "gpus": 0.0}]
    assert (now["reason"], now["spec"]["name"]) == (None, "train")
    waits = plan(cpus=4).json()  # train-1 goes first, with one of the four
    assert waits["placement"] is None
    assert waits["position"] == 2
    assert waits["reason"].startswith("it is number 2 in the queue, waiting for 4 CPUs")
    assert plan(cpus=5).json()["error"]["code"] == "impossible"
    assert plan(cpsu=5).json()["error"]["code"] == "spec"
    assert [job["id"] for job in api.get("/jobs")["jobs"]] == ["train-1"]


def test_a_server_that_nobody_needs_ends_itself_and_one_with_a_job_does_not(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the answer whether it is busy takes longer than it may be idle: seen on a busy machine."""
    is_busy = idle_stop._is_busy

    def slow(runtime: Runtime) -> bool:
        time.sleep(0.3)
        return is_busy(runtime)

    monkeypatch.setattr(idle_stop, "_is_busy", slow)
    told: list[Home] = []

    async def idle(limit_s: float) -> None:
        await asyncio.wait_for(supervised("looking", idle_stop.idle_check(api.runtime, 0.2, told.append)), limit_s)

    with pytest.raises(TimeoutError):
        asyncio.run(idle(1.5))  # a job waits
    assert told == []
    api.control.record("train-1", ev.CancelRequested("ada"))
    asyncio.run(idle(60.0))
    assert told == [api.home]
