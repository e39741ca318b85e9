"""A server that answers the REST contract from a table, for tests of the client and the command line alone."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainmaster.wire import rest

Answer = tuple[int, Any]
Route = Callable[["Asked"], Answer | None]  # None: break the connection without an answer


class Asked:
    """One request as it arrived."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.path = handler.path
        self.line = f"{handler.command} {rest.within(handler.path)}"
        self.key = handler.headers.get("Idempotency-Key")
        self.authorization = handler.headers.get("Authorization")
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


class ContractServer:
    """`asked` is every request so far; `route` answers them."""

    def __init__(self, route: Route, port: int = 0) -> None:
        self.asked: list[Asked] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                asked.append(Asked(self))
                answer = route(asked[-1])
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                data = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(route: Route) -> Iterator[ContractServer]:
    server = ContractServer(route)
    try:
        yield server
    finally:
        server.close()
