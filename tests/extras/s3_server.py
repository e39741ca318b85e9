"""An S3 server (moto's) and a proxy before it that throttles, resets, refuses or dies as a test wants."""

import base64
import http.client
import logging
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

BUCKET = "training"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "an-access-key", "AWS_SECRET_ACCESS_KEY": "a-very-secret-key", "AWS_REGION": "us-east-1"}
SLOW_DOWN = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
UNKNOWN = b'<?xml version="1.0"?><Error><Code>NotImplemented</Code><Message>A header is not known.</Message></Error>'
DAMAGED = b'<?xml version="1.0"?><Error><Code>BadDigest</Code><Message>The CRC32 you specified did not match.</Message></Error>'
DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'

# (method, path with query) -> None | "slow" | "reset" | "half" | "denied" | "down" | "flip"
Fault = Callable[[str, str], str | None]


@dataclass
class Proxy:
    """Forwards to the S3 server; `fault` decides what happens to each request.

    Unlike moto's server it compares the checksum that a body comes with; `compares` False: it knows of none, as older ones.
    """

    target: tuple[str, int]
    fault: Fault = lambda method, path: None
    seen: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    compares: bool = True
    compared: int = 0  # bodies that came with a checksum, and whole

    def count(self, method: str, word: str) -> int:
        """How many requests of a kind came."""
        return sum(one == method and word in path for one, path in self.seen)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def _handle(self) -> None:
        self.proxy.seen.append((self.command, self.path))
        what = self.proxy.fault(self.command, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if what in ("reset", "down"):
            self.rfile.read(min(length, 65536))
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if what == "flip" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        refused = self._refused(what, body)
        if refused is not None:
            self._answer(refused[0], {}, refused[1])
            return
        connection = http.client.HTTPConnection(*self.proxy.target, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if what == "half":  # done, and nobody is told: the answer breaks off
            self.connection.close()
            self.close_connection = True
            return
        self._answer(response.status, dict(response.headers), data)

    def _refused(self, what: str | None, body: bytes) -> tuple[int, bytes] | None:
        """Status and words of an answer that the S3 server is not asked for."""
        if what in ("slow", "denied"):
            return (503, SLOW_DOWN) if what == "slow" else (403, DENIED)
        ours = {"x-amz-checksum-algorithm", "x-amz-checksum-crc32"} & {name.lower() for name in self.headers}
        if not self.proxy.compares and ours:
            return 501, UNKNOWN
        told = self.headers.get("x-amz-checksum-crc32")
        if told is not None:
            if told != base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode():
                return 400, DAMAGED
            self.proxy.compared += 1
        return None

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = headers.get("Content-Length", headers.get("content-length")) if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def log_message(self, format: str, *args: object) -> None:
        """Silent: signed addresses are no reading matter."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is part of the game."""


@contextmanager
def s3_server() -> Iterator[tuple[str, int]]:
    """An S3 server with an empty bucket; its address."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  an extra

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        clear(host, port)
        yield host, port
    finally:
        server.stop()


def clear(host: str, port: int) -> None:
    """Forget everything, and make the bucket."""
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST"), timeout=30).close()
    urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT"), timeout=30).close()


@contextmanager
def proxy(target: tuple[str, int], fault: Fault = lambda method, path: None) -> Iterator[Proxy]:
    """A proxy before an S3 server."""
    made = Proxy(target, fault)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": made}))
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
