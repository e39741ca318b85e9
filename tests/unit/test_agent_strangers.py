"""A third party answers an agent instead of its server: nothing counts as stored, and nothing is stopped."""

import threading
from pathlib import Path
from typing import Any

import pytest
from contract_server import Answer, serving

from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.transport import sync
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.agent.transport.remote_store import Away, Remote, Stale
from trainmaster.agent.transport.sync import Sync

STALE = {"error": {"code": "stale_attempt", "message": "a later attempt is live"}}
STRANGERS: dict[str, Answer] = {
    "a gone page": (410, b"<html>gone</html>"),
    "another service": (200, {"status": "ok"}),
    "other shapes": (200, {"ack": {}, "orders": 7}),
    "orders that are none": (200, {"ack": 0, "orders": ["stop"]}),
    "nested": (200, b'{"ack":' + b"[" * 100_000),
    "a deep refusal": (500, b"[" * 100_000),
    "without end": (200, b" " * 5000),
}


def launch(url: str) -> Any:
    return {"key": "x-1.1/n0", "credential": "", "server_socket": None, "server_url": url}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=list(STRANGERS))
def test_the_answer_of_a_stranger_is_doubt(stranger: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "_ANSWER_MAX", 4000)
    server_is_back = threading.Event()
    good = {"ack": 1, "orders": [], "version": 0, "stale": False}
    with serving(lambda _: (200, good) if server_is_back.is_set() else stranger) as server:
        wake: Any = None
        talk = Sync(launch(server.url), Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points")), wake)
        talk.outbox.report("started", restored=None, step=None, bad=[], environment=None)
        talk.outbox.point(0, 1, {"loss": 1.0})
        talk.outbox.persist_points({})
        assert not talk.flush()
        assert (talk.outbox.empty, talk.outbox.points_empty, talk.answers.stale, list(talk.answers.orders)) == (False, False, False, [])
        server_is_back.set()
        assert talk.flush()
        assert talk.outbox.empty
        told = [b'"loss"' in one.body for one in server.asked]
        assert told[-1]


def test_the_word_of_the_server_itself_ends_an_attempt(tmp_path: Path) -> None:
    with serving(lambda _: (410, STALE)) as server:
        talk = Sync(launch(server.url), Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points")), Wake())
        assert talk.flush()
        assert talk.answers.stale
        with pytest.raises(Stale):
            Remote(launch(server.url), 0.0).ask("begin", files=[])


@pytest.mark.parametrize("stranger", [STRANGERS["a gone page"], STRANGERS["nested"]], ids=["gone", "nested"])
def test_an_upload_is_not_given_up_for_a_stranger(stranger: Answer) -> None:
    with serving(lambda _: stranger) as server, pytest.raises(Away):
        Remote(launch(server.url), 0.0).ask("begin", files=[])
