"""One HTTP connection to the api, kept alive. Answers are returned as values, errors raised as `trainmaster.errors`.

An idempotent request (a GET, or one with an Idempotency-Key) is retried when the connection breaks, for as long as a
restart of the server may take. One with a key is also retried once after a timeout. If that fails too, the error says
that it is unknown whether the request was accepted. Standard library only.
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

from trainmaster import __version__, errors
from trainmaster.errors import (
    AuthenticationError,
    BusyError,
    NotKnownError,
    OperationError,
    TrainmasterError,
    UnreachableError,
    UsageError,
)
from trainmaster.wire import rest
from trainmaster.wire.answers import Answer
from trainmaster.wire.tls import trusting

RESTART_S = 15.0  # the longest restart of a server
TIMEOUT_S = 30.0  # for an answer, in addition to the time of a long poll
AGAIN_S = 15.0  # for the answer to a retry after a timeout
_PAUSE_S = 0.1
_HINT = "see whether it runs: tm doctor"
_NO_TOKEN = (
    "log in (tm login URL), or set TRAINMASTER_TOKEN; an administrator makes a token: tm token create NAME"
)
_BLOCK_BYTES = 1024 * 1024
_ANSWER_MAX_BYTES = 256 * 1024 * 1024  # held in memory; our largest lists are a small part of that
_VERSION_MAX = 100  # characters
_WORDS_MAX = 20_000  # characters of an error that are shown

_TREE = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, TrainmasterError)]
BY_CODE: dict[str, type[TrainmasterError]] = {cls.code: cls for cls in _TREE}
_BY_STATUS: dict[int, type[TrainmasterError]] = {  # a proxy's 502 is not an error of the object store
    cls.http_status: cls for cls in reversed(_TREE) if cls.http_status not in (500, 502)
}


_BROKEN_OFF = (http.client.RemoteDisconnected, http.client.IncompleteRead)  # other errors: the peer does not speak HTTP
_PROXYS = frozenset((429, 500, 502, 503, 504))  # without an error body of ours, these come from a proxy


class Sink(Protocol):
    """Receives bytes."""

    def write(self, data: bytes, /) -> int:
        """Write bytes."""
        ...


class Call(NamedTuple):
    """One request, its `path` without `/api/v1`.

    `key` is its Idempotency-Key; `wait_s` is how long the server may delay the answer.
    """

    method: str
    path: str
    query: Mapping[str, Any] = MappingProxyType({})
    body: bytes | None = None
    content_type: str = "application/json"
    key: str | None = None
    wait_s: float = 0.0
    kept: tuple[str, bytes] | None = None  # ETag and body of the last answer, which is this one's where nothing changed
    repeatable: bool = False  # harmless to send twice, although it is neither a GET nor has a key

    @property
    def idempotent(self) -> bool:
        """Whether it may be retried when it is unknown whether it arrived."""
        return self.method == "GET" or self.key is not None or self.repeatable


class Patience(NamedTuple):
    """How long to try when nothing listens: `seconds`, as long as `hope()` is true. `on_wait` is called once per request.

    A connection that breaks during a request is retried for RESTART_S.
    """

    seconds: float = 2.0
    hope: Callable[[], bool] = lambda: True
    on_wait: Callable[[], None] = lambda: None


class _Relayed(Exception):
    """An answer of a proxy between client and server. It does not tell what the server did."""


class _Lost:
    """The retry state of one request without an answer."""

    def __init__(self, call: Call, began_s: float) -> None:
        self._call = call
        self._began_s = began_s
        self._told = self._refused = False
        self._timed_out: float | None = None  # time of the first timeout
        self._sent = False  # whether it may have arrived
        self._relayed = ""  # the last answer of a proxy

    @property
    def timeout_s(self) -> float:
        """The timeout of the next try."""
        return AGAIN_S if self._timed_out is not None else TIMEOUT_S + self._call.wait_s

    def waits(self, patience_s: float) -> bool:
        """Pause briefly and return True; False once `patience_s` are over."""
        if time.monotonic() - self._began_s >= patience_s:
            return False
        time.sleep(_PAUSE_S)
        return True

    def once_more(self, error: Exception, fresh: bool, patience: Patience) -> bool:
        """Whether to retry after `error`; pauses first if useful. `fresh`: the connection was new."""
        self._refused = isinstance(error, ConnectionRefusedError)
        self._sent = self._sent or not self._refused
        self._relayed = str(error) if isinstance(error, _Relayed) else ""
        if isinstance(error, TimeoutError):
            first = self._timed_out is None
            self._timed_out = self._timed_out or time.monotonic()
            again = self._call.key is not None and first
        elif not fresh and self._call.idempotent and not self._refused and not self._relayed:
                return True  # the server had closed an idle connection: this is normal
        else:
            limit_s = patience.seconds if self._refused else RESTART_S if self._call.idempotent else 0.0
            since_s = self._began_s if self._timed_out is None else self._timed_out
            again = time.monotonic() - since_s < limit_s and patience.hope()
            if again:
                time.sleep(_PAUSE_S)
        if again and not self._told:
            patience.on_wait()
            self._told = True
        return again

    def error(self, url: str) -> UnreachableError:
        """The final error."""
        if self._sent and self._call.key is not None:
            how = self._relayed or "did not answer"
            return NotKnownError(f"{url} {how}: whether it was accepted is not known", "look: tm ps")
        if self._relayed:
            return UnreachableError(f"{url} {self._relayed}", _HINT)
        if self._timed_out is not None:
            return UnreachableError(f"{url} does not answer in time", _HINT)
        if self._refused:
            return UnreachableError(f"no server answers at {url}", _HINT)
        tls = "; if it speaks TLS, its URL begins with https://" if url.startswith("http://") else ""
        return UnreachableError(f"the connection broke to {url}", _HINT + tls)


class Connection:
    """A connection to one URL with one token. Not thread-safe.

    `authority`: the certificate in PEM that proves the server; "": the system's certificates do.
    """

    def __init__(self, url: str, token: str, patience: Patience | None = None, authority: str = "") -> None:
        """Raises: UsageError for an invalid URL or authority, AuthenticationError for an invalid token."""
        self.url, self._token = url, token
        self._context = _context(url, authority) if authority else None
        if not _is_plain(token):
            hint = "copy it anew; it is the value of $TRAINMASTER_TOKEN, or stands in a trainmaster.toml"
            raise AuthenticationError("the token holds characters that no token has", hint)
        try:
            parts = urlsplit(url)
            self._secure, self._host = parts.scheme == "https", parts.hostname or "127.0.0.1"
            self._port = parts.port or (443 if self._secure else 80)
            self._host.encode("idna")
            if any(character.isspace() for character in self._host):
                raise ValueError("its host holds a blank")
            if not _is_plain(parts.path) or " " in parts.path:
                raise ValueError("its path holds characters that must be written as %XX")
        except ValueError as error:  # UnicodeError is one
            raise UsageError(f"{url!r} is no URL of a server: {error}", "write http://HOST:PORT") from error
        self._prefix = parts.path.rstrip("/").removesuffix(rest.ROOT)  # as somebody copied it from the documentation
        self._patience = patience or Patience()
        self._http: http.client.HTTPConnection | None = None
        self._kept: dict[str, tuple[str, bytes]] = {}  # the last answer of `json_again`, by what was asked for

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def json(self, call: Call) -> dict[str, Any]:
        """The JSON object in the answer. Raises: the server's error, UnreachableError."""
        return self._object(self._persist(call, whole=True)[1])

    def json_again(self, call: Call) -> dict[str, Any]:
        """Like `json`, for what is asked for again and again: the server sends it only where it has changed."""
        target = f"{call.path}?{_encoded(call.query)}"
        response, data = self._persist(call._replace(kept=self._kept.get(target)), whole=True)
        if tag := response.headers.get("ETag"):
            self._kept = {target: (tag, data)}
        return self._object(data)

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            value = json.loads(data or b"{}")
        except (ValueError, RecursionError) as error:
            raise self._stranger("JSON") from error
        if not isinstance(value, dict):
            raise self._stranger("a JSON object")
        return value

    def copy(self, call: Call, sink: Sink) -> int:
        """Write the answer's bytes to `sink`; how many. Raises: what the server says, OperationError (it broke off)."""
        response, _ = self._persist(call, whole=False)
        expected, size = response.length, 0
        try:
            while block := _part(response, _BLOCK_BYTES):
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
        """Send, again where that is allowed and may help; the body is read here if `whole`.

        Raises: what the server says, UnreachableError, NotKnownError (it may have done what has a key).
        """
        if call.key is not None and not _is_plain(call.key):
            raise UsageError(f"the key {call.key[:80]!a} cannot be sent", "1 to 200 printable characters of ASCII")
        lost = _Lost(call, time.monotonic())
        while True:
            fresh = self._http is None
            try:
                response = self._send(call, lost.timeout_s)
                data = _part(response, _ANSWER_MAX_BYTES + 1) if whole or response.status >= 300 else b""
                if (whole or data) and response.length and len(data) <= _ANSWER_MAX_BYTES:
                    raise http.client.IncompleteRead(data, response.length)  # `read` of so many bytes raises nothing
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    told = f"the certificate of {self.url} is not trusted: {error.verify_message}"
                    hint = f"if it is the server's own, compare its fingerprint: tm login {self.url}"
                    raise UnreachableError(told, hint) from error
                if isinstance(error, ssl.SSLError | socket.gaierror):
                    raise UnreachableError(f"{self.url} does not answer: {error}", _HINT) from error
                if isinstance(error, http.client.HTTPException) and not isinstance(error, _BROKEN_OFF):
                    raise self._stranger("HTTP") from error
                if not lost.once_more(error, fresh, self._patience):
                    raise lost.error(self.url) from error
                continue
            if len(data) > _ANSWER_MAX_BYTES:
                self.close()
                raise OperationError(f"{self.url} answers over {_ANSWER_MAX_BYTES // 2**20} MiB", "ask for less")
            if response.status == 304 and call.kept is not None:
                return response, call.kept[1]
            if 300 <= response.status < 400:
                where = (response.headers.get("Location") or "nowhere")[:200]
                hint = "name the one that answers: --server URL"
                raise OperationError(f"{self.url} sends to another address: {where!a}", hint)
            if response.status < 400:
                return response, data
            refused = refusal(response.status, data, self.url)
            if isinstance(refused, AuthenticationError) and not self._token:
                refused.hint = _NO_TOKEN  # the server names the header, which a person does not write
            if response.status == 404 and refused.message.startswith(f"there is no {rest.ROOT}/"):
                raise self._older(refused.message) from refused
            if response.status in _PROXYS and not _ours(data):
                self.close()
                relayed = _Relayed(f"answered {response.status}, not in the server's own words")
                if not lost.once_more(relayed, fresh, self._patience):
                    raise lost.error(self.url) from refused
                continue
            if not (isinstance(refused, BusyError) and call.idempotent and lost.waits(RESTART_S)):
                raise refused

    def _send(self, call: Call, timeout_s: float) -> http.client.HTTPResponse:
        if self._http is None:
            if self._secure:
                self._http = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)
            else:
                self._http = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
            self._http.response_class = Answer
            self._http.connect()
            self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http.sock.settimeout(timeout_s)
        headers = {"Accept": "application/json"}
        if call.kept is not None:
            headers["If-None-Match"] = call.kept[0]
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        query = {name: value for name, value in call.query.items() if value is not None}
        target = self._prefix + rest.address(call.path) + ("?" + _encoded(query) if query else "")
        self._http.request(call.method, target, call.body, headers)
        return self._http.getresponse()

    def _older(self, told: str) -> OperationError:
        """What to say of a server that has not got a path of this version."""
        version = str(self.json(Call("GET", "/healthz")).get("version"))[:_VERSION_MAX]
        message = f"the server at {self.url} is older than this tm: {told}; it has version {version}, tm {__version__}"
        return OperationError(message, "use a tm of the server's version, or bring the server up to date: tm down, then tm up")

    def _stranger(self, wanted: str) -> OperationError:
        told = f"{self.url} is not a Trainmaster server: its answer is not {wanted}"
        return OperationError(told, "check the URL and its port")


def _context(url: str, authority: str) -> ssl.SSLContext:
    try:
        return trusting(authority)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"the authority kept for {url} is no certificate: {error}", f"log in again: tm login {url}") from error


def _part(response: http.client.HTTPResponse, most: int) -> bytes:
    """At most so many bytes of the answer. Raises: OSError, HTTPException."""
    try:
        return response.read(most)
    except ValueError as error:  # a part of a negative size
        raise http.client.HTTPException(str(error)) from error


def _is_plain(text: str) -> bool:
    """Whether a header or a request's first line can hold it."""
    return text.isascii() and text.isprintable()


def _ours(body: bytes) -> bool:
    """Whether a refusal is one of a Trainmaster server."""
    try:
        return json.loads(body)["error"]["code"] in BY_CODE
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def refusal(status: int, body: bytes, url: str) -> TrainmasterError:
    """The error that an answer stands for."""
    try:
        told = json.loads(body)["error"]
        cls = BY_CODE.get(str(told["code"])) or _BY_STATUS.get(status, OperationError)
        details = [detail for detail in told.get("details") or () if isinstance(detail, dict)]
        error = cls(str(told["message"])[:_WORDS_MAX], str(told.get("hint") or "")[:_WORDS_MAX], details)
        error.request_id = str(told.get("request_id") or "")
        return error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        cls = _BY_STATUS.get(status, OperationError)
        return cls(f"{url} answered {status}", "check that the URL is a Trainmaster server's")


def _encoded(query: Mapping[str, Any]) -> str:
    """A query as part of a URL. Raises: UsageError."""
    try:
        return urlencode(query, doseq=True)
    except UnicodeEncodeError as error:
        raise UsageError("the request is not valid UTF-8 text") from error
