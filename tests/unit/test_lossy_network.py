"""Reports and points over a network that loses, duplicates and delays messages: each is recorded exactly once."""

import http.client
import itertools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.agent.transport import outbox, points, sync
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.control import observe
from trainmaster.control.world import Batch, World
from trainmaster.engines.local import exits
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.ports.store import NewRow
from trainmaster.server.runtime import agent_reports, limits, unsent_points
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.testing import builders

DIGEST = "d" * 64
FATES = ("ok", "ok", "lost", "unheard", "late", "busy")
DEEDS = ("report", "write", "read", "sample", "keep", "flush", "flush", "flush", "deliver", "control", "restart")


class Server:
    """The api and control on their real stores, without HTTP: a request is answered, refused, lost, or comes late."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.root = root
        self.open()
        self.names = (f"x-{number}" for number in itertools.count(1))
        self.world = World()
        self.fault_warnings = agent_reports.FaultWarnings()
        self.cursor = 0

    def open(self) -> None:
        """Once more, as after its end."""
        self.inbox, self.metrics = SqlInbox(self.root / "inbox.db"), SqlMetricStore(self.root / "metrics.db")

    def take(self, body: str) -> dict[str, Any]:
        """As the api does."""
        request = json.loads(body)
        key = AgentKey.parse(request["key"])
        news = agent_reports.read(request, key, 1000.0)
        rows = [NewRow(f"{key}:{report['n']}", AgentReport(str(key), report), 1.0) for report in news.reports]
        self.inbox.accept([*rows, *self.fault_warnings.due(news, 1.0)])
        self.metrics.write(news.points, news.heartbeats)
        return {"ack": news.ack, "orders": [], "version": 0, "stale": False}

    def control(self) -> None:
        """A tick: what is in the inbox is recorded, and the inbox forgets it."""
        batch = Batch(self.world, 1.0)
        for row in self.inbox.drain(self.cursor, 10_000):
            assert isinstance(row.command, AgentReport)
            observe.take_report(batch, AgentKey.parse(row.command.key), row.command.report)
            self.cursor = row.seq
        self.events += [new.event for new in batch.events]
        self.inbox.trim(self.cursor, 1.0)

    def begin(self) -> AgentKey:
        """A job whose agent is about to report."""
        job = builders.placed(builders.job(id=next(self.names), state=State.RUNNING))
        self.world.put(job)
        self.events: list[Any] = []
        return AgentKey(job.id, 1, 0)


class Wire:
    """In the place of the sender's HTTP connection."""

    def __init__(self, server: Server, fate: Callable[[], str]) -> None:
        self.server = server
        self.fate = fate
        self.late: list[str] = []
        self.sizes: list[int] = []

    def post(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        body = json.dumps(request)
        self.sizes.append(len(body))
        match self.fate():
            case "ok":
                return self.server.take(body)
            case "unheard":
                self.server.take(body)
            case "late":
                self.late.append(body)
            case "busy":
                raise sync.Refused(503)
        raise ConnectionResetError


class Agent:
    """The real outbox and sender. Its program writes values 0, 1, 2, … to its own file, which the agent reads and passes on."""

    def __init__(self, server: Server, key: AgentKey, fate: Callable[[], str]) -> None:
        self.server, self.key = server, key
        self.directory = server.home.attempt(key.job, 1, 0)
        self.directory.mkdir(parents=True)
        self.sdk = self.directory / "rank0.sdk"
        self.sdk.touch()
        self.outbox = Outbox(str(self.directory / "spool.jsonl"), str(server.home.points(str(key))))
        launch: Any = {"key": str(key), "server_socket": "there", "server_url": None, "credential": ""}
        wake: Any = None
        self.sync = sync.Sync(launch, self.outbox, wake)
        self.wire: Any = Wire(server, fate)
        self.sync._sender_client = self.wire
        self.written = self.read = self.offset = self.sampled = self.kept = 0
        self.durable: list[int] = []
        self.outbox.persist_points({"rank0.sdk": 0})

    def do(self, deed: str) -> None:
        """One thing that happens."""
        match deed:
            case "report":
                fields = {"id": f"0001-{len(self.durable)}", "step": 1, "approximate": False}
                part = {"parts_expected": 1, "digest": DIGEST, "files": 1, "bytes": 1}
                self.durable.append(int(self.outbox.report("staged", **fields, **part)["n"]))
            case "write":
                with self.sdk.open("ab") as file:
                    file.write(json.dumps({"t": "m", "step": None, "values": {"loss": float(self.written)}}).encode() + b"\n")
                self.written += 1
            case "read" if self.read < self.written:
                line = self.sdk.read_bytes()[self.offset :].split(b"\n")[0]
                self.offset += len(line) + 1
                self.read += 1
                self.outbox.point(0, None, json.loads(line)["values"])
                self.outbox.persist_points({"rank0.sdk": self.offset})
            case "sample":
                self.outbox.point(0, None, {"memory": float(self.sampled)})
                self.sampled += 1
            case "keep":
                self.outbox.persist_points({"rank0.sdk": self.offset})
                self.kept = self.sampled
            case "flush":
                self.sync.flush()
            case "deliver" if self.wire.late:
                self.server.take(self.wire.late.pop(0))
            case "control":
                self.server.control()
            case "restart":
                self.server.open()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("server"))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_network_does_all_is_told_once_and_in_order(server: Server, seed: int) -> None:
    """R11, R13: lost requests, lost and late answers, killed agents, servers that begin again."""
    chance = random.Random(seed)
    deeds = chance.choices(DEEDS, k=chance.randrange(10, 80))
    fates, killed = chance.choices(FATES, k=40), chance.random() < 0.5
    left = iter(fates)
    key = server.begin()
    agent = Agent(server, key, lambda: next(left, "ok"))
    for deed in deeds:
        agent.do(deed)
    if killed:
        server.control()
        batch = Batch(server.world, 1.0)
        for report in exits.spooled((agent.directory / "spool.jsonl").read_bytes() if agent.outbox._spooled else b""):
            observe.take_report(batch, key, report)
        server.events += [new.event for new in batch.events]
    else:
        while agent.read < agent.written:
            agent.do("read")
        agent.do("keep")
        agent.wire.fate = lambda: "ok"
        agent.sync.finish()
        agent.outbox.points.finish()
        (agent.directory / "exit.json").touch()
    for late in agent.wire.late * 2:
        server.take(late)
    server.control()
    unsent_points.import_points(server.home, server.metrics, key.job)
    recorded = [event.report for event in server.events if isinstance(event, ev.CheckpointStaged)]
    assert recorded == agent.durable
    losses = [value for _, value in server.metrics.series(key.job, "loss", 10_000)]
    assert losses == [float(number) for number in range(agent.written)]
    samples = [value for _, value in server.metrics.series(key.job, "memory", 10_000)]
    assert samples == [float(number) for number in range(len(samples))]
    assert agent.kept <= len(samples) <= agent.sampled


def test_a_day_of_reports_is_told_in_requests_of_bounded_size(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: what waited while the server was away neither fills one request nor costs a point."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of reports in a moment: not what this is about
    agent = Agent(server, server.begin(), lambda: "ok")
    for number in range(4000):
        agent.outbox.report("run", params={}, tags={f"t{number % 50}-{k}": "x" * 60 for k in range(12)})
    for step in range(3000):
        agent.outbox.point(0, step, {"loss": 1.0})
    agent.outbox.point(0, 3000, {f"{number}-{'long' * 50}": 1.0 for number in range(10_000)})
    agent.do("keep")
    assert agent.sync.finish()
    assert max(agent.wire.sizes) < 1.5 * (outbox.BATCH_BYTES + points.BATCH_BYTES) < limits.body_max_bytes("POST", "/agent/sync") / 2
    assert len(agent.wire.sizes) < 40
    assert len(server.metrics.series(agent.key.job, "loss", 10_000)) == 3000
    assert len(server.metrics.last([agent.key.job])[agent.key.job]) == 10_001


class Picky(Wire):
    """A server of another version, or behind a proxy: what holds a bad word it refuses, whole."""

    def post(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if '"bad"' in json.dumps(request) or self.fate() != "ok":
            raise sync.Refused(422, "no such thing")
        return super().post(request, timeout_s)


def test_one_piece_that_is_refused_takes_none_with_it(server: Server) -> None:
    """R12: the refused pieces are found by halves and given up with a word; everything else arrives."""
    key = server.begin()
    agent = Agent(server, key, lambda: "ok")
    agent.sync._sender_client = agent.wire = Picky(server, lambda: "ok")
    for number in range(50):
        agent.do("report")
        if number in (0, 20, 21):
            agent.outbox.report("bad")
        agent.outbox.point(0, number, {"bad" if number in (0, 17) else "loss": 1.0})
    agent.do("keep")
    assert agent.sync.finish()
    server.control()
    recorded = [event.report for event in server.events if isinstance(event, ev.CheckpointStaged)]
    assert recorded == agent.durable
    assert len(server.metrics.series(key.job, "loss")) == 48
    words = {trouble.topic: trouble.text for trouble in server.world.jobs[key.job].troubles}
    assert words["reports not taken"] == "a report of kind 'bad' was dropped: the server answered 422: no such thing"
    assert words["metrics not taken"].startswith("a metric point was dropped (")


def test_a_server_that_refuses_everything_makes_nobody_give_up(server: Server) -> None:
    """R12: where even an empty request is refused, it is not for what it holds; nothing is given up."""
    agent = Agent(server, server.begin(), lambda: "ok")
    agent.sync._sender_client = agent.wire = Picky(server, lambda: "refused")
    agent.do("report")
    agent.outbox.point(0, 1, {"loss": 1.0})
    agent.do("keep")
    for _ in range(10):
        agent.do("flush")
    assert (agent.outbox.empty, agent.outbox.points_empty) == (False, False)
    agent.wire.fate = lambda: "ok"
    assert agent.sync.finish()


def test_an_agent_whose_faults_go_on_is_warned_of_now_and_then() -> None:
    warnings, key = agent_reports.FaultWarnings(), AgentKey("x-1", 1, 0)

    def faulty(second: int) -> int:
        point = {"n": second, "step": second, "values": {"loss": "low"}, "age_s": 0}
        return len(warnings.due(agent_reports.read({"points": [point]}, key, 1000.0), float(second)))

    assert [second for second in range(1, 1800, 10) if faulty(second)] == [1, 601, 1201]


def test_a_report_that_cannot_be_read_is_passed_over_with_a_warning(server: Server) -> None:
    """R12, S9: of another version, malformed, or with numbers that no store holds; told once, however often it comes."""
    key = server.begin()
    batch = Batch(server.world, 1.0)
    bad: list[dict[str, Any]] = [
        {"kind": "dreamt", "n": 1},
        {"kind": "staged", "n": 2, "id": "0001-1"},
        {"kind": "kept", "n": 3, "path": "a", "digest": DIGEST, "bytes": 10**299},
    ]
    for report in bad:
        for _ in range(2):
            observe.take_report(batch, key, report)
    warned = [new.event for new in batch.events if isinstance(new.event, ev.Warned)]
    assert len(batch.events) == len(warned) == 3
    assert all(event.topic == "reports passed over" for event in warned)
    assert [word in event.text for word, event in zip(("dreamt", "digest", "bytes"), warned, strict=True)] == [True] * 3


WHOLE: list[dict[str, Any]] = [
    {"kind": "started", "n": 1, "restored": None, "step": None, "bad": [], "environment": None},
    {"kind": "preparing", "n": 1, "doing": "a"},
    {"kind": "rendezvous", "n": 1, "address": "a", "port": 1},
    {"kind": "not_kept", "n": 1, "what": "artifact", "name": "a", "why": "b"},
    {"kind": "kept", "n": 1, "path": "a", "digest": DIGEST, "bytes": 1, "artifact_kind": "file"},
    {"kind": "run", "n": 1, "params": {}, "tags": {}},
]


@pytest.mark.parametrize("report", WHOLE, ids=lambda report: str(report["kind"]))
def test_an_agent_newer_or_older_by_one_field_is_understood(server: Server, report: dict[str, Any]) -> None:
    """R24: a field more changes nothing; one less leaves a default, or a warning where the report says nothing without it."""

    def taken(report: dict[str, Any]) -> list[Any]:
        key = server.begin()
        server.world.put(builders.placed(builders.job(id=key.job)))
        batch = Batch(server.world, 1.0)
        observe.take_report(batch, key, report)
        return [new.event for new in batch.events]

    (whole,) = taken(report)
    assert taken({**report, "novel": {"a": [1]}}) == [whole]
    for name in report:
        if name not in ("kind", "n"):
            (event,) = taken({field: value for field, value in report.items() if field != name})
            assert isinstance(event, type(whole) | ev.Warned), name


def test_an_answer_that_is_none_is_asked_for_again(server: Server) -> None:
    agent = Agent(server, server.begin(), lambda: "ok")
    agent.do("report")

    def broken(request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        raise http.client.BadStatusLine("")

    post, agent.wire.post = agent.wire.post, broken
    assert not agent.sync.flush()
    agent.wire.post = post
    assert agent.sync.flush()
    assert agent.outbox.empty
