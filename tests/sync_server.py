"""A minimal server for agents on a Unix socket: `POST /agent/sync`, with answers and orders set by the test, and the output
of commands.
"""

import http.server
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import deadline


class SyncServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Holds what it was sent; `give` changes the orders of one agent, which ends its long poll."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []  # of commands
        self.tokens: set[str | None] = set()
        self.changed = threading.Condition()
        self.orders: dict[str, list[dict[str, Any]]] = {}
        self.stale: set[str] = set()
        self.closing = False
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection, remembered so that the end of this server ends it, kept alive or not."""
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def close_connections(self) -> None:
        """As the end of a server's process would."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def give(self, key: str, *orders: dict[str, Any]) -> None:
        """These are now the agent's orders."""
        with self.changed:
            self.orders[key] = list(orders)
            self.changed.notify_all()

    def reports(self, key: str, kind: str | None = None) -> list[dict[str, Any]]:
        """What an agent reported, each report once, by number."""
        found = {r["n"]: r for request in list(self.requests) if request["key"] == key for r in request["reports"]}
        return [found[n] for n in sorted(found) if kind in (None, found[n]["kind"])]

    def wait_for(self, key: str, kind: str) -> dict[str, Any]:
        """The first report of a kind, awaited."""
        return deadline(lambda: self.reports(key, kind) or None, f"a {kind} report of {key}")[0]

    def points(self, key: str) -> list[tuple[int, int | None, dict[str, float]]]:
        """(rank, step, values) of every point of an agent."""
        return [(p["rank"], p["step"], p["values"]) for r in list(self.requests) if r["key"] == key for p in r["points"]]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Agents end in the middle of a long poll; that is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: SyncServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        if self.path != "/agent/sync":
            server.outputs += [request] if "chunks" in request else []
            self._answer({"taken": True, "data": "", "ended": True})
            return
        key = request["key"]
        with server.changed:
            server.requests.append(request)
            server.tokens.add(self.headers["Authorization"])
            if request["wait_s"]:
                server.changed.wait_for(
                    lambda: server.closing or key in server.stale or self._version(key) != request["orders_seen"], request["wait_s"]
                )
            answer = {
                "ack": max((report["n"] for report in request["reports"]), default=0),
                "orders": server.orders.get(key, []),
                "version": self._version(key),
                "stale": key in server.stale,
            }
        self._answer(answer)

    def _answer(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _version(self, key: str) -> int:
        orders = self.server.orders.get(key, [])
        return hash(json.dumps(orders)) & 0xFFFFFFFF or 1 if orders else 0

    def address_string(self) -> str:
        return "agent"

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


@contextmanager
def sync_server(path: Path) -> Iterator[SyncServer]:
    """A server that serves until the block ends."""
    server = SyncServer(path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        with server.changed:
            server.closing = True
            server.changed.notify_all()
        server.shutdown()
        server.close_connections()
        server.server_close()
        thread.join()
