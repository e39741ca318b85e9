"""The agent's side of the api: credentials, reports once and durable, the fence, orders by long poll."""

import asyncio
import fcntl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_server import SECRET, Api, serving
from sqlalchemy import Engine, event
from waiting import deadline

from trainmaster.agent.transport.point_file import PointFile
from trainmaster.cli.inspect.ps import cells
from trainmaster.cli.jobs.resubmit import arrived
from trainmaster.client.api import Client
from trainmaster.lifecycle.effects import FAILURE_GRACE_S, GRACE_S
from trainmaster.model import events as ev
from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Job, Outcome, State, StopFor, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.ports.metric_store import HeartbeatRow, MetricPoint
from trainmaster.server.agents.orders import orders, over, superseded, version
from trainmaster.server.jobs import job_reads
from trainmaster.server.runtime import metric_writer
from trainmaster.server.runtime.credentials import credential
from trainmaster.server.runtime.unsent_points import import_points
from trainmaster.testing.builders import job as a_job
from trainmaster.testing.builders import placed
from trainmaster.wire.names import STALLED

SHARES = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))
KEY = "train-1.1/n0"
STARTED = {"kind": "started", "n": 1, "restored": None, "step": None, "bad": []}
AGAIN = Verdict(Action.RESTART, State.QUEUED, "again")
DONE = Verdict(Action.FINISH, State.SUCCEEDED, "done")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        served.submit()
        served.take_up()
        served.control.record("train-1", ev.Placed(1, SHARES))
        yield served


def reports(api: Api) -> list[AgentReport]:
    return [row.command for row in api.services.inbox.drain(0, 100) if isinstance(row.command, AgentReport)]


def test_only_the_agents_own_credential_is_taken(api: Api) -> None:
    body = {"key": KEY, "reports": [STARTED], "points": [], "heartbeat": None, "wait_s": 0, "orders_seen": 0}
    admin = api.home.token_file.read_text().strip()
    for given in ("none", admin, credential(SECRET, "train-1.2/n0"), credential(b"other", KEY)):
        answer = api.http.post("/agent/sync", json=body, headers={"Authorization": f"Bearer {given}", "X-Trainmaster-Key": KEY})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "authentication")
    assert reports(api) == []
    jobs = api.http.get("/jobs", headers={"Authorization": f"Bearer {credential(SECRET, KEY)}"})
    assert jobs.status_code == 401


def test_reports_are_durable_when_acknowledged_and_kept_once(api: Api) -> None:
    second = {"kind": "rendezvous", "n": 2, "address": "127.0.0.1", "port": 29500}
    assert api.sync(KEY, reports=[STARTED, second]) == {"ack": 2, "orders": [], "version": 0, "stale": False, "gang_step": None}
    assert api.sync(KEY, reports=[STARTED, second])["ack"] == 2
    assert reports(api) == [AgentReport(KEY, STARTED), AgentReport(KEY, second)]


def test_a_job_that_may_hang_is_seen_wherever_jobs_are_looked_at(api: Api) -> None:
    """Issue 14: it was "running", and nothing else was said."""
    text = "no step for 2 min (usually every 0.02 s), and no output; CPU use: rank 0 0 %: tm exec train-1 --stacks shows where it is"

    def seen() -> tuple[str | None, str, bool, list[str]]:
        (listed,), shown = api.get("/jobs")["jobs"], api.get("/jobs/train-1")
        assert listed["stalled"] == shown["stalled"]
        gauge = 'trainmaster_job_stalled{job="train-1"} 1.0' in api.http.get("/metrics").text
        return listed["stalled"], cells(listed, 0.0)[-1], gauge, [one["text"] for one in shown["troubles"]]

    assert "trainmaster_job_stalled 1 for a job that may hang; absent for all others" in api.http.get("/metrics").text
    api.control.record("train-1", ev.NodeStarted(1, 0))
    assert seen() == (None, "node0", False, [])
    api.control.record("train-1", ev.Warned(1, 0, STALLED, text, 2))
    assert seen() == (text, text, True, [text])
    api.control.record("train-1", ev.Warned(1, 0, STALLED, "", 3))
    assert seen() == (None, "node0", False, [])
    told = [event["text"] for event in api.get("/jobs/train-1/events")["events"]]
    assert told[-2:] == [f"n0: {text}", "n0: its ranks go on"]


def test_points_and_heartbeats_reach_the_metrics(api: Api) -> None:
    points = [
        {"rank": 0, "step": 1, "values": {"loss": 2.5, "bad": float("nan")}, "age_s": 0.5},
        {"rank": 0, "step": 2, "values": {"loss": 1.5}, "age_s": 0.0},
    ]
    beat = {"running_s": 3.0, "step": 2, "memory_bytes": 1000, "cpu_s": 1.5, "gpu": []}
    api.sync(KEY, points=points, heartbeat=beat)
    told = {"series": {"loss": [[1, 2.5], [2, 1.5]]}, "best": {"loss": {"step": 2, "value": 1.5}}}
    assert api.get("/jobs/train-1/metrics", name="loss") == told
    shown = api.get("/jobs/train-1")
    assert (shown["step"], shown["metrics"]["loss"]["value"], shown["metrics"]["bad"]["value"]) == (2, 1.5, "NaN")
    bad = {"bad": {"value": "nan", "since_step": 1, "last_step": None, "last_value": None}}
    assert [shown["diverged"], api.get("/jobs")["jobs"][0]["diverged"]] == [bad, bad]
    api.sync(KEY, points=[{"rank": 0, "step": step, "values": {"loss": float("inf")}, "age_s": 0.0} for step in (3, 4)])
    infinite = {"value": "inf", "since_step": 3, "last_step": 2, "last_value": 1.5}
    assert (api.get("/jobs/train-1")["metrics"]["loss"]["value"], api.get("/jobs/train-1")["diverged"]["loss"]) == ("Infinity", infinite)
    assert [(row.key, row.step, row.memory_bytes) for row in api.services.metrics.heartbeats("train-1")] == [(KEY, 2, 1000)]


@pytest.mark.parametrize(("takes_s", "stored"), [(0.3, True), (30.0, False)])
def test_the_last_points_are_stored_before_the_end_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch, takes_s: float, stored: bool
) -> None:
    """`tm wait` returned and `tm metrics` had no value yet. A store that is very slow keeps no end from being told."""
    plain, over, values = api.services.metrics.write, threading.Event(), list[MetricPoint]()

    def slow(points: Sequence[MetricPoint], beats: Sequence[HeartbeatRow]) -> int:
        over.wait(takes_s)
        values.extend(points)
        return plain(points, beats)

    monkeypatch.setattr(api.services.metrics, "write", slow)
    point, ended = {"n": 1, "rank": 0, "step": 9, "values": {"loss": 0.5}, "age_s": 0}, {"kind": "ended", "n": 2}
    sending = threading.Thread(target=api.sync, args=(KEY,), kwargs={"points": [point], "reports": [ended]})
    sending.start()
    deadline(lambda: reports(api) == [AgentReport(KEY, ended)], "the end")
    assert [one.value for one in values] == ([0.5] if stored else [])
    over.set()
    sending.join(60.0)


def test_a_node_learns_the_highest_step_of_its_gang(api: Api) -> None:
    """Issue 14: a node that names no steps was told to hang while rank 0 trained. A gang of one node is told nothing."""
    assert api.sync(KEY, heartbeat={"step": 7})["gang_step"] is None
    job = api.submit()
    api.take_up()
    shares = Allocation((NodeShare("node0", "127.0.0.1", 1.0), NodeShare("node1", "127.0.0.1", 1.0)))
    api.control.record(job, ev.Placed(1, shares))
    silent = f"{job}.1/n1"
    assert api.sync(silent, heartbeat={"step": None})["gang_step"] is None
    api.sync(f"{job}.1/n0", heartbeat={"step": 7})
    assert api.sync(silent, heartbeat={"step": None})["gang_step"] == 7
    assert api.sync(silent)["gang_step"] is None


@pytest.mark.parametrize("sizes", [(25,), (9, 3), (6, 6, 6), (10, 1), ()])
def test_no_value_of_a_point_is_lost_where_a_large_sync_is_written_in_parts(
    api: Api, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes each number once: what was cut off a point at 10,000 values was taken for stored, and gone."""
    monkeypatch.setattr(metric_writer, "_VALUES_AT_ONCE", 10)
    points = [
        {"n": n, "rank": 0, "step": n, "values": {f"m{n}-{k}": float(k) for k in range(size)}, "at_s": 1.0, "age_s": 0.0}
        for n, size in enumerate(sizes, 1)
    ]
    for _ in range(2):  # and told twice, each is stored once
        api.sync(KEY, points=points)
        assert len(api.services.metrics.last(["train-1"]).get("train-1", {})) == sum(sizes)


def test_an_answer_with_all_metrics_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """15,000 metrics took 30 s, and each may have 2,000 points."""
    monkeypatch.setattr(job_reads, "NAMES_MAX", 3)
    monkeypatch.setattr(job_reads, "_POINTS_MAX", 30)
    api.sync(KEY, points=[{"rank": 0, "step": n, "values": {"a": 1.0, "b": 1.0, "c": 1.0}, "age_s": 0.0} for n in range(100)])
    assert [len(one) for one in api.get("/jobs/train-1/metrics")["series"].values()] == [10, 10, 10]
    assert len(api.get("/jobs/train-1/metrics", name="a")["series"]["a"]) == 30
    api.sync(KEY, points=[{"rank": 0, "step": 1, "values": {"d": 1.0}, "age_s": 0.0}])
    answer = api.http.get("/jobs/train-1/metrics")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "train-1 has 4 metrics; 3 at most are told at once")


def test_the_fence_refuses_an_older_attempt_but_for_its_end(api: Api) -> None:
    api.control.record("train-1", ev.NodeEnded(1, 0, Outcome(lost=True)), ev.AttemptEnded(1, AGAIN))
    api.control.record("train-1", ev.Placed(2, SHARES))
    ended = {"kind": "ended", "n": 3, "ranks": []}
    point = {"rank": 0, "step": 9, "values": {"loss": 9.0}, "age_s": 0}
    deadline(lambda: api.sync(KEY)["stale"], "the api to hear of attempt 2")
    answer = api.sync(KEY, reports=[STARTED, ended], points=[point])
    assert (answer["ack"], answer["stale"]) == (3, True)
    assert [order["order"] for order in answer["orders"]] == ["stop"]
    assert reports(api) == [AgentReport(KEY, ended)]
    assert api.get("/jobs/train-1/metrics", name="loss")["series"]["loss"] == []
    assert api.sync("train-1.2/n0")["stale"] is False


def test_the_last_points_of_an_attempt_may_come_after_its_end(api: Api) -> None:
    """S9: from its agent, while that lives; from nobody afterwards."""
    api.control.record("train-1", ev.NodeStarted(1, 0), ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, DONE))
    deadline(lambda: api.sync(KEY)["orders"], "the api to hear of the end")
    directory = api.home.attempt("train-1", 1, 0)
    directory.mkdir(parents=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = api.sync(KEY, points=[{"rank": 0, "step": 9, "values": {"loss": 0.5}, "age_s": 0}], reports=[STARTED])
        assert (answer["stale"], [order["order"] for order in answer["orders"]]) == (False, ["stop"])
    assert api.get("/jobs/train-1/metrics")["series"] == {"loss": [[9, 0.5]]}
    api.sync(KEY, points=[{"rank": 0, "step": 10, "values": {"loss": 0.1}, "age_s": 0}], heartbeat={"step": 10})
    assert api.get("/jobs/train-1/metrics")["series"] == {"loss": [[9, 0.5]]}  # the agent is gone
    assert api.services.metrics.heartbeats("train-1") == []
    assert reports(api) == []


def test_what_is_recorded_while_the_job_is_looked_up_is_seen_by_who_asks_next(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that began before the news and ends after it is no answer to who was rung for the news."""
    plain, read, go_on, heard = api.services.events.job, threading.Event(), threading.Event(), threading.Event()
    forget = api.runtime.recorded.forget

    def slow(job_id: str) -> Job | None:
        found = plain(job_id)
        if not read.is_set():
            read.set()
            go_on.wait(60.0)
        return found

    def hear(job_id: str) -> None:
        forget(job_id)
        heard.set()

    def seen() -> State:
        return asyncio.run_coroutine_threadsafe(api.runtime.recorded.job("train-1"), api.loop).result(60.0).state  # type: ignore[union-attr]

    monkeypatch.setattr(api.services.events, "job", slow)
    api.loop.call_soon_threadsafe(api.runtime.recorded.forget, "train-1")
    first = asyncio.run_coroutine_threadsafe(api.runtime.recorded.job("train-1"), api.loop)
    assert read.wait(60.0)
    monkeypatch.setattr(api.runtime.recorded, "forget", hear)
    api.control.record("train-1", ev.CancelRequested("ada"))
    assert heard.wait(60.0)
    after = seen()
    assert after is not State.STARTING
    go_on.set()
    assert first.result(60.0).state is State.STARTING  # type: ignore[union-attr]
    assert seen() is after


def test_points_of_an_attempt_outlive_the_beginning_of_the_next(api: Api) -> None:
    """An agent that ended while the api was away lost what it had not sent once the next attempt was placed."""
    directory = api.home.attempt("train-1", 1, 0)
    directory.mkdir(parents=True)
    kept = PointFile(str(api.home.points(KEY)), 0.0)
    kept.append(kept.lines([(n, float(n), 0, n, {"loss": 1.0 / n}) for n in (1, 2)]), {}, 2)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        api.control.record("train-1", ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, AGAIN), ev.Placed(2, SHARES))
        deadline(lambda: api.sync(KEY)["stale"], "the api to hear of attempt 2")
        first = {"n": 1, "rank": 0, "step": 1, "values": {"loss": 1.0}, "at_s": 1.0, "age_s": 0}
        api.sync(KEY, points=[first])
        assert api.get("/jobs/train-1/metrics")["series"] == {}  # it may run still
        (directory / "exit.json").write_text("{}")
        api.sync(KEY, points=[first])
        assert api.get("/jobs/train-1/metrics")["series"] == {"loss": [[1, 1.0]]}  # attempt 2 has not begun
        api.sync("train-1.2/n0", points=[{**first, "step": 3, "values": {"loss": 0.3}}])
        assert api.get("/jobs/train-1/metrics")["series"] == {"loss": [[1, 1.0], [2, 0.5], [3, 0.3]]}
        api.sync(KEY, points=[{**first, "n": 3, "step": 4}])
        assert api.get("/jobs/train-1/metrics")["series"] == {"loss": [[1, 1.0], [2, 0.5], [3, 0.3]]}


def test_that_the_last_values_are_still_arriving_is_said(api: Api) -> None:
    """Of a job that told much at its end, a value of its middle was shown as the last, and the best so far as the best."""
    other = api.submit()
    api.take_up()
    for job, value in (("train-1", 0.4), (other, 0.5)):
        api.services.metrics.write([MetricPoint(job, 1, 0, 1, "loss", value, 1.0)], [])
    directory = api.home.attempt("train-1", 1, 0)
    directory.mkdir(parents=True)
    kept = PointFile(str(api.home.points(KEY)), 0.0)
    kept.append(kept.lines([(2, 2.0, 0, 2, {"loss": 0.9})]), {}, 2)
    said = "its last metric values are still arriving: look again in a moment"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert said not in api.get("/jobs/train-1")["notes"], "it runs"
        api.control.record("train-1", ev.NodeEnded(1, 0, Outcome()), ev.AttemptEnded(1, DONE))
        deadline(lambda: said in api.get("/jobs/train-1")["notes"], "the api to hear of the end")
        told = api.get("/compare", job=["train-1", other], metric="loss")
        assert (f"{said} (train-1)" in told["not_compared"], told["metrics"][0]["winner"]) == (True, None)
    threading.Timer(0.2, import_points, (api.home, api.services.metrics)).start()
    with Client(str(api.http.base_url.copy_with(path="/")), api.http.headers["Authorization"].split()[1]) as client:
        found = arrived(client, "train-1")  # as `tm reproduce -f` waits
    assert [job["metrics"]["loss"]["value"] for job in found] == [0.9]
    assert said not in api.get("/jobs/train-1")["notes"]
    assert api.get("/compare", job=["train-1", other], metric="loss")["metrics"][0]["winner"] == 0


def test_orders_are_waited_for(api: Api) -> None:
    answers: list[dict[str, object]] = []
    waiting = threading.Thread(target=lambda: answers.append(api.sync(KEY, wait_s=20)))
    waiting.start()
    api.control.record("train-1", ev.RendezvousChosen(1, "127.0.0.1", 29500))
    waiting.join(5.0)
    meet = {"order": "rendezvous", "address": "127.0.0.1", "port": 29500}
    assert [answer["orders"] for answer in answers] == [[meet]]
    seen = answers[0]["version"]
    held = threading.Thread(target=lambda: answers.append(api.sync(KEY, wait_s=20, orders_seen=seen)))
    held.start()
    api.control.record("train-1", ev.CancelRequested("ann"))
    held.join(5.0)
    assert answers[1]["orders"] == [meet, {"order": "stop", "grace_s": GRACE_S, "reason": "cancel"}]
    assert answers[1]["version"] != seen


def test_what_cannot_be_stored_costs_nothing_else(api: Api) -> None:
    """R12: unknown kinds and fields, values that are no numbers: passed over with a word, the rest stored."""
    staged = {"kind": "staged", "n": 3, "id": "0001-1", "step": 1}
    points = [
        {"n": 1, "rank": 0, "step": 1, "values": {"loss": 1.0, "text": "much", "huge": 10**300}, "at_s": 1.0, "age_s": 0},
        {"n": 2, "rank": 0, "step": [], "values": {"loss": 2.0}, "at_s": 1.0, "age_s": 0},
        {"n": 3, "rank": 0, "step": 3, "values": {"loss": 3.0}, "at_s": 1.0, "age_s": 0, "novel": 1},
        "point",
    ]
    dreamt = {"kind": "dreamt", "n": 2}
    for _ in range(2):
        assert api.sync(KEY, reports=[STARTED, dreamt, {"n": "x"}, staged], points=points, novel=1)["ack"] == 3
    assert api.get("/jobs/train-1/metrics", name="loss")["series"] == {"loss": [[1, 1.0], [3, 3.0]]}
    told = [report.report for report in reports(api)]
    assert told[:3] == [STARTED, dreamt, staged]
    assert [(report["kind"], report["n"], report["topic"]) for report in told[3:]] == [
        ("warned", 0, "reports passed over"),
        ("warned", 0, "metrics passed over"),
    ]
    assert "points holds 'point'" in str(told[3]["text"])


def test_the_step_of_a_program_that_prints_nothing_else(api: Api) -> None:
    """It was "-" for as long as the program ran: only the heartbeats tell it. One query for a whole list."""
    ids = ["train-1", *(api.submit() for _ in range(3))]
    api.take_up()
    for job in ids[1:]:
        api.control.record(job, ev.Placed(1, SHARES))
    for job in ids[:3]:
        api.control.record(job, ev.NodeStarted(1, 0))
        for index, step in enumerate((7, 9, None)):
            api.services.metrics.write([], [HeartbeatRow(f"{job}.1/n{index}", time.time(), step, 0, 0.0)])
    api.services.metrics.write([MetricPoint("train-2", 1, 0, 3, "loss", 1.0, 1.0)], [])
    asked: list[str] = []

    def note(*about: Any) -> None:
        asked.append(about[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        listed = {job["id"]: job["step"] for job in api.get("/jobs")["jobs"]}
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert listed == {"train-1": 9, "train-2": 3, "train-3": 9, "train-4": None}
    assert len([statement for statement in asked if "heartbeat" in statement]) == 1
    assert api.get("/jobs/train-1")["step"] == api.get("/jobs/train-1/watch")["job"]["step"] == 9
    api.control.record("train-1", ev.NodeEnded(1, 0, Outcome(lost=True)), ev.AttemptEnded(1, AGAIN), ev.Placed(2, SHARES))
    assert api.get("/jobs/train-1")["step"] is None  # the attempt before has told it


def test_an_agent_of_an_unknown_job_is_heard_and_told_nothing(api: Api) -> None:
    assert api.sync("other-7.1/n0", reports=[STARTED]) == {"ack": 1, "orders": [], "version": 0, "stale": False, "gang_step": None}


def test_orders_follow_from_the_job_alone() -> None:
    key, older = AgentKey("train-1", 2, 0), AgentKey("train-1", 1, 0)
    job = placed(a_job(), 2, master_address="127.0.0.1", master_port=29500)
    stopping = placed(a_job(), 2)
    meet = {"order": "rendezvous", "address": "127.0.0.1", "port": 29500}
    over_now = {"order": "stop", "grace_s": 0.0, "reason": "this attempt is over"}
    assert orders(a_job(), key) == []
    assert orders(job, key) == [meet]
    assert orders(job, older) == [over_now]
    assert (superseded(job, older), superseded(job, key), over(job, older), over(job, key)) == (True, False, True, False)
    for why, grace_s in ((StopFor.EVICT, GRACE_S), (StopFor.FAILURE, FAILURE_GRACE_S)):
        asked = replace(stopping, state=State.STOPPING, stopping_for=why)
        assert orders(asked, key) == [{"order": "stop", "grace_s": grace_s, "reason": why.value}]
    assert version([]) == 0
    assert len({version(orders(job, key)), version(orders(job, older)), 0}) == 3


def test_an_agent_that_does_not_answer_is_told_of(api: Api) -> None:
    """S3: a job whose agent hung was "running" for ever, and nothing said so."""
    job = api.submit()
    api.take_up()
    api.control.record(job, ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
    last_read_s = time.time() - 600.0
    api.services.metrics.write([], [HeartbeatRow(f"{job}.1/n0", last_read_s, 3, 0, 0.0)])
    assert api.get(f"/jobs/{job}")["troubles"] == []  # the server has only begun: agents may have yet to find it
    api.runtime.activity.started_s -= 300.0
    (told,) = api.get(f"/jobs/{job}")["troubles"]
    assert (told["topic"], told["node"], told["since_s"]) == ("agent", 0, pytest.approx(last_read_s))
    assert told["text"].startswith("its agent has sent nothing for 10 min")
    assert api.get(f"/jobs/{job}/why")["troubles"] == [told]
    api.services.metrics.write([], [HeartbeatRow(f"{job}.1/n0", time.time(), 3, 0, 0.0, 1.0)])
    assert api.get(f"/jobs/{job}")["troubles"] == []
