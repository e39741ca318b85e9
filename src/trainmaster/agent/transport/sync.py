"""Communication with the server: a sender for reports and points, and a poller for orders. The server may be away for hours.

Nothing here decides. Orders are passed to the main loop as they arrive, and a failed request is retried later.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import deque
from urllib.parse import urlsplit

from trainmaster.agent.transport.points import BATCH_MAX
from trainmaster.wire.answers import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.agent.transport.point_file import Point
    from trainmaster.wire.launch import Launch

_POLL_S = 20.0
_POST_TIMEOUT_S = 5.0
_BACKOFF_MIN_S, _BACKOFF_MAX_S = 0.1, 2.0
_GAP_MIN_S, _GAP_MAX_S = 0.05, 0.25  # between two requests that carry points only
_BRISK_S = 5.0  # the shorter gap applies for so long after the start, because users watch a start
_HEARTBEAT_S = 5.0
_UNREACHABLE_S = 2.0  # before it ends, an agent waits so long for an unreachable server, and
_FINISH_S = 10.0  # so long for a slow one
_POINTS_S = 5.0  # for points that are sent before the end is reported
_PATH = "/agent/sync"
_SAID_MAX = 200  # characters shown of the server's message
_ANSWER_MAX = 64 << 20  # bytes of an answer; the server's largest are a few MiB
_NOT_TAKEN = (400, 413, 422)  # the server read the request and rejects its content


class Refused(Exception):
    """The server answered with another status than 200. `said` is the server's message."""

    def __init__(self, status: int, said: str = "") -> None:
        super().__init__(f"the server answered {status}{': ' if said else ''}{said}")
        self.status = status


class Answers:
    """What the server has told this agent so far. `orders` are for the main loop, which takes them and is woken for them."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self.version = 0  # of the orders
        self.orders: deque[dict[str, Any]] = deque()
        self.stale = False  # a later attempt is live
        self.gang_step: Optional[int] = None  # the highest step of any node of the gang

    def take(self, response: dict[str, Any]) -> None:
        """Take one answer. Callable from any thread."""
        if response.get("stale"):
            self.stale = True
            self.orders.append({"order": "stop", "reason": "a later attempt is live"})
        version = response.get("version")
        if isinstance(version, int):
            self.version = version
        step = response.get("gang_step")
        if isinstance(step, int):
            self.gang_step = step
        self.orders.extend(response.get("orders") or [])
        if self.orders:
            self._wake.set()


class Heartbeat:
    """The current state of the ranks. `state` returns it, once there is one; its argument says whether to include devices."""

    def __init__(self) -> None:
        self.state: Optional[Callable[[bool], dict[str, Any]]] = None
        self._sent_s = -_HEARTBEAT_S

    def now(self, with_devices: bool) -> Optional[dict[str, Any]]:
        """The state now; None if there is none yet."""
        return self.state(with_devices) if self.state is not None else None

    def due(self, now_s: float) -> Optional[dict[str, Any]]:
        """The state to send beside reports, without devices; None if one was sent a short time ago."""
        return self.now(False) if now_s - self._sent_s >= _HEARTBEAT_S else None

    def sent(self, now_s: float) -> None:
        """The server has got what was due."""
        self._sent_s = now_s


class Sync:
    """The connection of one agent to its server."""

    def __init__(self, launch: Launch, outbox: Outbox, wake: Wake) -> None:
        self._launch = launch
        self.outbox = outbox
        self.answers = Answers(wake)
        self.heartbeat = Heartbeat()
        self._began_s = time.monotonic()
        self._post_lock = threading.Lock()
        self._sender_client = Client(launch)
        self._closing = threading.Event()
        self._most = BATCH_MAX  # limit of reports and points in the next request
        self._threads: set[str] = set()

    @property
    def enabled(self) -> bool:
        """Whether a server is configured."""
        return bool(self._launch["server_socket"] or self._launch["server_url"])

    def start_sender(self) -> None:
        """Start the thread that sends reports and points as they arrive."""
        self._start("sender", self._send)

    def start_poller(self) -> None:
        """Start the thread that polls for orders."""
        self._start("poller", self._poll)

    def _start(self, name: str, target: Callable[[], None]) -> None:
        if self.enabled and name not in self._threads:
            self._threads.add(name)
            threading.Thread(target=target, name=name, daemon=True).start()

    def flush(self, timeout_s: float = _POST_TIMEOUT_S) -> bool:
        """Send what waits, in one request. False if the server is unreachable or accepts nothing at all.

        If the server rejects the content, the next request carries half as much, until the rejected item is alone.
        """
        if not self._post_lock.acquire(timeout=timeout_s):
            return False
        try:
            reports, points = self.outbox.batch(self._most)
            now = time.monotonic()
            beat = None if self._closing.is_set() else self.heartbeat.due(now)  # the exit record says more than a heartbeat
            request = self._request([_aged(report, now) for report in reports], 0.0, beat)
            request["points"] = [_point(point, now) for point in points]
            try:
                response = _heard(self._sender_client.post(request, timeout_s))
            except Refused as refusal:
                self.outbox.put_back()
                self.outbox.spool()
                return refusal.status in _NOT_TAKEN and self._send_less(len(reports) + len(points), refusal, timeout_s)
            except (OSError, http.client.HTTPException, ValueError):
                self.outbox.put_back()
                self.outbox.spool()
                return False
            self.outbox.points.sent()
            self._most = min(2 * self._most, BATCH_MAX)
            if beat is not None:
                self.heartbeat.sent(now)
            self._take(response)
            return True
        finally:
            self._post_lock.release()

    def _send_less(self, sent: int, refusal: Refused, timeout_s: float) -> bool:
        """The server rejected the content. A single item is dropped if the server accepts a request without it."""
        if sent > 1:
            self._most = max(1, min(sent, self._most) // 2)
            return True
        if sent == 0:
            return False
        try:
            self._sender_client.post(self._request([], 0.0, None), timeout_s)
        except (OSError, http.client.HTTPException, ValueError, Refused):
            return False  # the item is not the cause
        self.outbox.drop_oldest(str(refusal))
        return True

    def send_points(self) -> None:
        """Send the points of an attempt that has ended, for a short time, except for what its last report may carry.

        The server records the end with that report. A user who waits for the end reads the metrics then.
        """
        until_s = time.monotonic() + _POINTS_S
        while self.enabled and self.outbox.points.many and time.monotonic() < until_s and self.flush(_UNREACHABLE_S):
            pass

    def finish(self) -> bool:
        """Send what is left; give up if the server is unreachable or slow. Returns whether everything was acknowledged."""
        if not self.enabled:
            return False
        self._closing.set()
        until_s = time.monotonic() + _FINISH_S
        reached_s = time.monotonic()
        pause_s = 0.02
        while not (self.outbox.empty and (self.answers.stale or self.outbox.points_empty)):
            before = (self.outbox.settled, self._most)
            if self.flush(_UNREACHABLE_S):
                if self.outbox.empty or before != (self.outbox.settled, self._most):
                    continue
                if self.answers.stale:
                    break  # the server answered, and rejects it permanently
                reached_s = time.monotonic()
            now = time.monotonic()
            if now - reached_s > _UNREACHABLE_S or now > until_s:
                break
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)
        if not self.outbox.empty:
            self.outbox.spool()
        return self.outbox.empty

    def _send(self) -> None:
        backoff_s = _BACKOFF_MIN_S
        while not self._closing.is_set():
            self.outbox.waiting.wait()
            if self._closing.is_set():
                return
            began_s = time.monotonic()
            if self.flush():
                backoff_s = _BACKOFF_MIN_S
                took_s = time.monotonic() - began_s
                gap_s = _GAP_MIN_S if began_s - self._began_s < _BRISK_S else _GAP_MAX_S
                self.outbox.urgent.wait(max(gap_s, 4 * took_s))
            else:
                self._closing.wait(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)

    def _poll(self) -> None:
        client = Client(self._launch)
        backoff_s = _BACKOFF_MIN_S
        while not self._closing.is_set():
            began_s, seen = time.monotonic(), self.answers.version
            try:
                request = self._request([], _POLL_S, self.heartbeat.now(True))
                self._take(_heard(client.post(request, _POLL_S + 10.0)))
            except (OSError, http.client.HTTPException, ValueError, Refused):
                self._closing.wait(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
                continue
            backoff_s = _BACKOFF_MIN_S
            if self.answers.version == seen and time.monotonic() - began_s < 1.0:
                self._closing.wait(1.0)  # the server does not hold the request open

    def _request(self, reports: list[dict[str, Any]], wait_s: float, heartbeat: Optional[dict[str, Any]]) -> dict[str, Any]:
        return {
            "key": self._launch["key"],
            "reports": reports,
            "points": [],
            "heartbeat": heartbeat,
            "wait_s": wait_s,
            "orders_seen": self.answers.version,
        }

    def _take(self, response: dict[str, Any]) -> None:
        self.outbox.acknowledged(response["ack"])
        self.answers.take(response)


class Client:
    """One kept-alive HTTP connection for the requests of one path."""

    def __init__(self, launch: Launch, path: str = _PATH) -> None:
        self._launch = launch
        self._place = path
        self._connection: Optional[http.client.HTTPConnection] = None
        authentication = {"Authorization": f"Bearer {launch['credential']}", "X-Trainmaster-Key": launch["key"]}
        self._headers = {**authentication, "Content-Type": "application/json"}

    def post(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one request. If the server has closed the kept connection meanwhile, a new one is opened.

        Raises: OSError, http.client.HTTPException, ValueError, Refused.
        """
        body = json.dumps(request).encode()
        kept = self._connection is not None
        try:
            return self._exchange(body, timeout_s)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept:
                raise
            return self._exchange(body, timeout_s)

    def _exchange(self, body: bytes, timeout_s: float) -> dict[str, Any]:
        done = False
        try:
            if self._connection is None:
                self._connection = connect(self._launch, timeout_s)
            if self._connection.sock is not None:
                self._connection.sock.settimeout(timeout_s)
            self._connection.request("POST", self._path(), body, self._headers)
            response = self._connection.getresponse()
            data = response.read(_ANSWER_MAX + 1)
            if len(data) > _ANSWER_MAX:
                raise ValueError("the answer exceeds its limit")
            done = True
        finally:
            if not done and self._connection is not None:
                self._connection.close()
                self._connection = None
        if response.status == 200:
            return decoded(data)
        error = error_of(data)
        if error.get("code") == "stale_attempt":  # a bare 410 may come from a proxy and proves nothing
            return {"ack": 0, "orders": [], "stale": True}
        raise Refused(response.status, str(error.get("message") or "")[:_SAID_MAX])

    def _path(self) -> str:
        if self._launch["server_socket"]:
            return self._place
        return urlsplit(self._launch["server_url"] or "").path.rstrip("/") + self._place


def _aged(report: dict[str, Any], now_s: float) -> dict[str, Any]:
    """The report as it is sent: that of the start says how long ago that was."""
    if "at_s" not in report:
        return report
    told = {name: value for name, value in report.items() if name != "at_s"}
    return {**told, "ago_s": round(now_s - report["at_s"], 3)}


def _point(point: Point, now_s: float) -> dict[str, Any]:
    """The point as it is sent (`wire.messages.Point`); `now_s` on the monotonic clock."""
    n, at_s, rank, step, values = point
    return {"n": n, "rank": rank, "step": step, "values": values, "at_s": round(at_s, 3), "age_s": round(now_s - at_s, 3)}


def _heard(answer: dict[str, Any]) -> dict[str, Any]:
    """Validate an answer to a sync. Raises: ValueError if it is not from a Trainmaster server: then nothing was stored."""
    ack, orders = answer.get("ack"), answer.get("orders")
    if not isinstance(ack, int) or not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
        raise ValueError("not an answer of a Trainmaster server")
    return answer


def decoded(data: bytes) -> dict[str, Any]:
    """The JSON object of an answer. Raises: ValueError if there is none."""
    try:
        answer = json.loads(data)
    except RecursionError as error:
        raise ValueError("an answer nested too deeply") from error
    if not isinstance(answer, dict):
        raise ValueError("the server's answer is not an object")
    return answer


def error_of(data: bytes) -> dict[str, Any]:
    """The error object of the server's answer; empty if the answer came from something else."""
    try:
        error = decoded(data).get("error")
    except ValueError:
        return {}
    return error if isinstance(error, dict) else {}


def connect(launch: Launch, timeout_s: float) -> http.client.HTTPConnection:
    """A connection to the server, not opened yet."""
    path, url = launch["server_socket"], urlsplit(launch["server_url"] or "")
    if path:
        connection: http.client.HTTPConnection = _UnixConnection(path, timeout_s)
    elif url.scheme == "https":
        from trainmaster.wire.tls import trusting  # noqa: PLC0415 - slow to import, and agents of this machine use a socket

        authority = launch.get("server_authority")
        context = trusting(authority) if authority else None
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=timeout_s)
    connection.response_class = Answer
    return connection


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
