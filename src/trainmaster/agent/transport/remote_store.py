"""Client of a remote store: it moves bytes with addresses that the server signs, or through the server itself.

Transient failures (throttling, resets, timeouts, an unreachable server) are retried with jittered back-off for up to
`patience_s`. A permanent rejection is raised at once. Signed addresses are secrets and are never written to disk or log.
"""

from __future__ import annotations

import errno
import http.client
import json
import random
import threading
import time
from urllib.parse import quote, urlsplit

from trainmaster.agent.transport.sync import connect, decoded, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Optional, Protocol, Tuple, TypeVar

    from trainmaster.wire.launch import Launch

    _Answer = TypeVar("_Answer")

    class Body(Protocol):
        """Content to send. Its length is known in advance, and each try reads it from the beginning."""

        def __len__(self) -> int: ...
        def blocks(self) -> Iterator[bytes]: ...


BLOCK_BYTES = 1 << 20
_STORE_PATH, _BLOB_PATH = "/agent/store", "/agent/blob"
_TIMEOUT_S = 60.0
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 10.0
TELL_AFTER_S = 60.0  # of failed tries
_LATER = frozenset((408, 410, 429, 500, 502, 503, 504, 507))
_OWN_DISK = (errno.ENOSPC, errno.EDQUOT)  # it is this node's that is full: to wait for the server is no use
_DENIALS = 2  # in a row, each with a fresh address: the first address may have expired


class Denied(OSError):
    """Rejected permanently; the text says by which side and what to do."""


class Stale(OSError):
    """A later attempt is running: the server accepts nothing more from this one."""


class Absent(OSError):
    """The blob or the upload does not exist."""


class Exists(OSError):
    """There is a blob of this name: an earlier try succeeded and its answer was lost, or it has other bytes."""


class Away(OSError):
    """Neither the store nor the server answered within `patience_s`."""


class _Download:
    """Progress of one download."""

    def __init__(self, begin: Callable[[], Callable[[bytes], None]]) -> None:
        self._begin = begin
        self._sink: Optional[Callable[[bytes], None]] = None
        self.taken = 0

    def restart(self) -> None:
        """Start again at the beginning."""
        self.taken, self._sink = 0, self._begin()

    def take(self, data: bytes) -> None:
        """Accept the next piece."""
        assert self._sink is not None
        self._sink(data)
        self.taken += len(data)


class Remote:
    """One agent's connection to the store. Thread-safe; each thread has its own connections."""

    def __init__(self, launch: Launch, patience_s: float = 3600.0) -> None:
        self._launch = launch
        self.patience_s = patience_s
        self.retries = 0
        self.waiting: Callable[[str], None] = lambda text: None  # called with what fails for long; "" when it works again
        self._conditional = True
        self._kept = threading.local()
        self._server = {"Authorization": f"Bearer {launch['credential']}", "X-Trainmaster-Key": launch["key"]}

    def ask(self, what: str, **fields: Any) -> Dict[str, Any]:
        """Send a request about the store to the server. Raises: Denied, Stale, Absent, Away."""
        body = json.dumps({"key": self._launch["key"], "do": what, **fields}).encode()
        headers = {**self._server, "Content-Type": "application/json", "Content-Length": str(len(body))}

        def once() -> Dict[str, Any]:
            status, data, _ = self._exchange("POST", None, _STORE_PATH, headers, lambda connection: connection.send(body))
            _check(status, data, what)
            return decoded(data)

        return self._trying(what, once)

    def put(self, address: Callable[[], Optional[str]], name: str, body: Body, signed: Optional[Dict[str, str]] = None) -> str:
        """Send a file or a part of it; returns its ETag. `address` gives a fresh signed address; None: through the server.

        What is named by its digest is put over what is there: equal bytes, or damaged ones.
        `signed`: headers that are part of the address's signature. Raises: Denied, Stale, Absent, Exists, Away.
        """
        denied = 0

        def once() -> str:
            nonlocal denied
            url = address()
            headers = {"Content-Length": str(len(body)), **(signed or {})}
            path = f"{_BLOB_PATH}?name={quote(name)}"
            if url is None:
                headers.update(self._server)
            elif self._conditional and "uploadId=" not in url and not named_by_digest(name):
                headers["If-None-Match"] = "*"
            status, data, etag = self._exchange("PUT", url, path, headers, lambda connection: _send(connection, body))
            if status == 501 and self._conditional:
                self._conditional = False  # the store does not support conditional writes
                raise http.client.HTTPException("once more, without a condition")
            if status == 412:
                raise Exists(f"{name} exists")
            if status == 400 and b"<Code>BadDigest</Code>" in data:
                raise http.client.HTTPException("damaged on its way")
            if status == 403 and url is not None:
                denied += 1
                if denied < _DENIALS:
                    raise http.client.HTTPException("an address that may have run out")
            _check(status, data, f"store {name}")
            return etag

        return self._trying(f"store {name}", once)

    def get(self, address: Callable[[], Optional[str]], name: str, begin: Callable[[], Callable[[bytes], None]]) -> None:
        """Download a blob piece by piece into the sink that `begin` returns. An interrupted download is resumed if possible.

        Raises: Denied, Stale, Absent, Away.
        """
        got = _Download(begin)
        denied = 0

        def once() -> None:
            nonlocal denied
            url = address()
            if url is None:
                got.restart()
            headers = {"Range": f"bytes={got.taken}-"} if got.taken else {}
            if url is None:
                headers.update(self._server)
            status, data = self._download(url, f"{_BLOB_PATH}?name={quote(name)}", headers, got)
            denied += status == 403
            if status == 403 and url is not None and denied < _DENIALS:
                raise http.client.HTTPException("an address that may have run out")
            if status != 416:  # 416: the download was interrupted after its last byte
                _check(status, data, f"read {name}")

        self._trying(f"read {name}", once)

    def _trying(self, what: str, once: Callable[[], _Answer]) -> _Answer:
        """Retry `once` until it succeeds. Raises: Denied, Stale, Absent, Exists, and OSError for a full disk of this node at
        once; Away when `patience_s` is over.
        """
        began_s, pause_s, told = time.monotonic(), _BACKOFF_S, False
        while True:
            try:
                answer = once()
                if told:
                    self.waiting("")
                return answer
            except (Denied, Stale, Absent, Exists):
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                if getattr(error, "errno", None) in _OWN_DISK:
                    raise
                now_s = time.monotonic()
                if now_s - began_s >= self.patience_s:  # read each time, because another thread may set it to 0
                    raise Away(f"could not {what}: {type(error).__name__}; the store or the server did not answer") from None
                self.retries += 1
                if not told and now_s - began_s >= TELL_AFTER_S:
                    told = True
                    self.waiting(f"the store or the server does not answer ({type(error).__name__}); it is tried again")
                time.sleep(random.uniform(pause_s / 2, pause_s))
                pause_s = min(pause_s * 2, _BACKOFF_MAX_S)

    def _exchange(
        self, method: str, url: Optional[str], path: str, headers: Dict[str, str], send: Callable[[Any], None]
    ) -> Tuple[int, bytes, str]:
        """Make one request, with bounded memory. Raises: OSError, http.client.HTTPException."""
        place, connection, target = self._connection(url, path)
        done = False
        try:
            connection.putrequest(method, target)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            send(connection)
            response = connection.getresponse()
            data = response.read()
            done = not response.will_close
        finally:
            if not done:
                self._drop(place)
        return response.status, data, response.headers.get("ETag") or ""

    def _download(self, url: Optional[str], path: str, headers: Dict[str, str], got: _Download) -> Tuple[int, bytes]:
        place, connection, target = self._connection(url, path)
        done = False
        try:
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
            if response.status not in (200, 206):
                data = response.read()
                done = True
                return response.status, data
            if response.status == 200:
                got.restart()  # 200: the answer is the whole blob, even if a range was requested
            while True:
                data = response.read(BLOCK_BYTES)
                if not data:
                    break
                got.take(data)
            if response.length:
                raise http.client.IncompleteRead(b"")
            done = not response.will_close
            return 200, b""
        finally:
            if not done:
                self._drop(place)

    def _connection(self, url: Optional[str], path: str) -> Tuple[str, http.client.HTTPConnection, str]:
        """(key of the kept connection, the connection, the request target)."""
        kept = self._kept.__dict__.setdefault("connections", {})
        if url is None:
            place, target = "", path
            if not self._launch["server_socket"]:
                target = urlsplit(self._launch["server_url"] or "").path.rstrip("/") + path
            if place not in kept:
                kept[place] = connect(self._launch, _TIMEOUT_S)
            return place, kept[place], target
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc}"
        if place not in kept:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            kept[place] = kind(parts.netloc, timeout=_TIMEOUT_S)
        return place, kept[place], f"{parts.path}?{parts.query}"

    def _drop(self, place: str) -> None:
        connection = self._kept.__dict__.get("connections", {}).pop(place, None)
        if connection is not None:
            connection.close()


def named_by_digest(name: str) -> bool:
    """Whether all bytes that are stored under this name should be equal."""
    return name.startswith("artifacts/")


def _send(connection: http.client.HTTPConnection, body: Body) -> None:
    for data in body.blocks():
        connection.send(data)


def _check(status: int, data: bytes, what: str) -> None:
    """Raise the error that the answer means, unless the answer is a success."""
    if status in (200, 201, 204):
        return
    error = error_of(data)  # empty for an answer of the store, which is XML
    words = f"{error.get('message', '')} {error.get('hint', '')}".strip()
    if error.get("code") == "stale_attempt":
        raise Stale(words or "a later attempt is live")
    if status == 404:
        raise Absent(words or f"could not {what}: it is not there")
    if status in _LATER and error.get("code") != "store_refused":
        raise http.client.HTTPException(f"answered {status}")
    if not words:
        words = f"the store refused to {what} ({status}): check the credentials in the server's environment and its policy"
    raise Denied(words)
