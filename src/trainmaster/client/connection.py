"""One HTTP connection to the api, kept alive; answers as values, refusals as `trainmaster.errors`.

A request that may be sent twice without harm (a GET, or one with an Idempotency-Key) is sent again when the connection
breaks under it, for as long as a restart of the server takes. Standard library only.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

from trainmaster import errors
from trainmaster.errors import OperationError, TrainmasterError, UnreachableError

RESTART_S = 15.0  # as long as a restart of the server may take
TIMEOUT_S = 30.0  # for an answer, beyond what a long poll asks for
_PAUSE_S = 0.1
_HINT = "see whether it runs: tm doctor"
_BLOCK_BYTES = 1024 * 1024

_TREE = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, TrainmasterError)]
BY_CODE: dict[str, type[TrainmasterError]] = {cls.code: cls for cls in _TREE}
_BY_STATUS: dict[int, type[TrainmasterError]] = {  # a proxy's 502 says nothing of the object store
    cls.http_status: cls for cls in reversed(_TREE) if cls.http_status not in (500, 502)
}


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int:
        """Take them."""
        ...


class Call(NamedTuple):
    """One request. `key` is its Idempotency-Key; `wait_s` is how long the server may hold the answer back."""

    method: str
    path: str
    query: Mapping[str, Any] = MappingProxyType({})
    body: bytes | None = None
    content_type: str = "application/json"
    key: str | None = None
    wait_s: float = 0.0
    repeatable: bool = False  # harmless to send twice though it is neither a GET nor has a key

    @property
    def idempotent(self) -> bool:
        """Whether it may be sent again when nobody knows whether it arrived."""
        return self.method == "GET" or self.key is not None or self.repeatable


class Patience(NamedTuple):
    """How long to try when nobody listens: `seconds`, as long as there is `hope`; `on_wait` is told once per request.

    A connection that broke under a request gets RESTART_S.
    """

    seconds: float = 2.0
    hope: Callable[[], bool] = lambda: True
    on_wait: Callable[[], None] = lambda: None


class Connection:
    """To one URL with one token. Not for several threads at once."""

    def __init__(self, url: str, token: str, patience: Patience | None = None) -> None:
        parts = urlsplit(url)
        self.url, self._token = url, token
        self._secure, self._host = parts.scheme == "https", parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._patience = patience or Patience()
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Let the connection go; the next request opens another."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def json(self, call: Call) -> dict[str, Any]:
        """The JSON object answered. Raises: what the server says, UnreachableError."""
        _, data = self._persist(call, whole=True)
        try:
            value = json.loads(data or b"{}")
        except ValueError as error:
            raise self._stranger() from error
        if not isinstance(value, dict):
            raise self._stranger()
        return value

    def copy(self, call: Call, sink: Sink) -> int:
        """Write the answer's bytes to `sink`; how many. Raises: what the server says, OperationError (it broke off)."""
        response, _ = self._persist(call, whole=False)
        expected, size = response.length, 0
        try:
            while block := response.read(_BLOCK_BYTES):
                sink.write(block)
                size += len(block)
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            self.close()
            raise OperationError(f"{self.url} broke off after {size} bytes", "try again") from error
        if expected is not None and size != expected:
            self.close()
            raise OperationError(f"{self.url} sent {size} of {expected} bytes", "try again")
        return size

    def _persist(self, call: Call, whole: bool) -> tuple[http.client.HTTPResponse, bytes]:
        """Send, again where that is allowed and may help; the body is read here if `whole`. Raises: what the server says."""
        began_s, told = time.monotonic(), False
        while True:
            fresh = self._http is None
            try:
                response = self._send(call)
                data = response.read() if whole or response.status >= 400 else b""
            except (TimeoutError, ssl.SSLError, socket.gaierror) as error:
                self.close()
                raise UnreachableError(f"{self.url} does not answer: {error}", _HINT) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                refused = isinstance(error, ConnectionRefusedError)
                if not fresh and call.idempotent and not refused:
                    continue  # an idle connection that the server had closed: nothing is wrong yet
                patience_s = self._patience.seconds if refused else RESTART_S if call.idempotent else 0.0
                if time.monotonic() - began_s >= patience_s or not self._patience.hope():
                    what = "no server answers at" if refused else "the connection broke to"
                    raise UnreachableError(f"{what} {self.url}", _HINT) from error
                if not told:
                    self._patience.on_wait()
                    told = True
                time.sleep(_PAUSE_S)
                continue
            if response.status >= 400:
                raise refusal(response.status, data, self.url)
            return response, data

    def _send(self, call: Call) -> http.client.HTTPResponse:
        timeout_s = TIMEOUT_S + call.wait_s
        if self._http is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._http = kind(self._host, self._port, timeout=timeout_s)
            self._http.connect()
            self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http.sock.settimeout(timeout_s)
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        query = {name: value for name, value in call.query.items() if value is not None}
        target = self._prefix + call.path + ("?" + urlencode(query, doseq=True) if query else "")
        self._http.request(call.method, target, call.body, headers)
        return self._http.getresponse()

    def _stranger(self) -> OperationError:
        return OperationError(f"{self.url} is not a Trainmaster server: its answer is not JSON", "check the URL and its port")


def refusal(status: int, body: bytes, url: str) -> TrainmasterError:
    """The error that an answer stands for."""
    try:
        told = json.loads(body)["error"]
        cls = BY_CODE.get(str(told["code"])) or _BY_STATUS.get(status, OperationError)
        error = cls(str(told["message"]), str(told.get("hint") or ""), list(told.get("details") or []))
        error.request_id = str(told.get("request_id") or "")
        return error
    except (ValueError, KeyError, TypeError):
        cls = _BY_STATUS.get(status, OperationError)
        return cls(f"{url} answered {status}", "check that the URL is a Trainmaster server's")
