"""Requests of other users of the machine to a job's MLflow listener."""

import contextlib
import http.client
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import deadline

from trainmaster.agent.mlflow import http_server, run_api

TOKEN = {"Authorization": "Bearer secret"}
PATH = "/api/2.0/mlflow/runs/get"


class Runs:
    """Answers every call."""

    def answer(self, *_: Any) -> tuple[int, dict[str, Any]]:
        return 200, {}


@contextlib.contextmanager
def listener(runs: Any, place: Path) -> Iterator[int]:
    """Its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = http_server.Server(listener.detach(), runs, "secret", str(place))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.socket.getsockname()[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with listener(Runs(), tmp_path) as port:
        yield port


def call(connection: http.client.HTTPConnection, headers: dict[str, str]) -> int:
    connection.request("GET", PATH, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def is_open(opened: socket.socket) -> bool:
    opened.setblocking(False)
    try:
        return opened.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_idle_connections_of_others_keep_no_call_out(port: int) -> None:
    """S8: another user's idle connections made a job's MLflow calls fail; now the oldest of them make room."""
    with contextlib.ExitStack() as many:
        own = many.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)))
        assert call(own, TOKEN) == 200
        idle = [many.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(200)]
        later = many.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)))
        assert call(later, TOKEN) == 200
        deadline(lambda: sum(map(is_open, idle)) <= http_server._STRANGERS_MAX, "the oldest to be closed")
        assert call(own, TOKEN) == 200, "one that has shown the token is no stranger"
        assert is_open(idle[-1])


def test_a_stranger_has_a_short_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: one that never sends its head is closed soon; the job's own may rest."""
    monkeypatch.setattr(http_server.Handler, "timeout", 0.1)
    own = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(own), socket.create_connection(("127.0.0.1", port)) as idle:
        assert call(own, TOKEN) == 200
        deadline(lambda: not is_open(idle), "an idle stranger to be closed")
        assert call(own, TOKEN) == 200
        assert own.sock is not None
    odd = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(odd):
        assert call(odd, {"Authorization": "Bearer s\xe9cret"}) == 401


def test_what_is_no_call_of_mlflow_is_answered(tmp_path: Path) -> None:
    """The script heard nothing but a connection that broke, and tried again for minutes, as MLflow's client does."""
    whole = {"id": "f" * 32, "experiment_id": "7", "experiment": "e", "name": "n", "params": {}, "tags": {}}
    bodies = ("[]", "null", '{"metrics": 7}', '{"metrics": [null]}', '{"params": [1]}', '{"tags": {"a": 1}}', '{"tags": [{}]}')
    with listener(run_api.Runs(whole, 0, deque()), tmp_path) as port:  # type: ignore[arg-type]
        for body in bodies:
            whole_body = body.replace("{", '{"run_id": "' + "f" * 32 + '", ', 1) if body.startswith("{") else body
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                connection.request("POST", "/api/2.0/mlflow/runs/log-batch", whole_body, TOKEN)
                assert (body, connection.getresponse().status) == (body, 400)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("POST", "/api/2.0/mlflow/runs/log-batch", headers={**TOKEN, "Content-Length": "-5"})
            assert connection.getresponse().status == 400
