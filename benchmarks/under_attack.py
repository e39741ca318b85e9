"""What everybody else notices while a client is hostile or greedy: the slowest `GET /healthz`, and the memory of the api.

A second process asks `/healthz` every 20 ms meanwhile. Goals: 100 ms, and 64 MB more memory. It uses nothing but the REST
API.
"""

import http.client
import json
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.sharedctypes import Synchronized
from typing import Any
from urllib.parse import urlsplit

import common
import psutil
import serving

from trainmaster.home import Home
from trainmaster.wire import rest

EVERY_S = 0.02
GOAL_S, GOAL_BYTES = 0.1, 64 * 10**6


class Server:
    """Where it is, and how to ask it without our own client."""

    def __init__(self, home: Home) -> None:
        self.record = json.loads(home.server_json.read_text())
        url = urlsplit(self.record["url"])
        self.host, self.port = url.hostname or "127.0.0.1", url.port or 80
        self.token = home.token_file.read_text().strip()

    def ask(self, method: str, path: str, body: bytes | None = None, known: bool = True) -> int:
        """The status of one request; 0 where the server closed the connection before it answered."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if known else {})
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def api(self) -> psutil.Process:
        """The process that answers."""
        return psutil.Process(self.record["pids"]["api"])


def probe(server: Server, worst: "Synchronized[float]", over: Any) -> None:
    """Ask again and again, and keep the slowest."""
    while not over.is_set():
        began = time.monotonic()
        server.ask("GET", "/healthz", known=False)
        worst.value = max(worst.value, time.monotonic() - began)
        time.sleep(EVERY_S)


def attacked(server: Server, attack: Callable[[Server], object]) -> tuple[float, int]:
    """The slowest answer in seconds, and by how many bytes the api grew at most."""
    worst, over = multiprocessing.Value("d", 0.0), multiprocessing.Event()
    asking = multiprocessing.Process(target=probe, args=(server, worst, over), daemon=True)
    api, peak = server.api(), 0
    before = api.memory_info().rss
    asking.start()
    time.sleep(0.3)
    worst.value = 0.0
    working = threading.Thread(target=attack, args=(server,), daemon=True)
    working.start()
    while working.is_alive():
        peak = max(peak, api.memory_info().rss)
        working.join(0.01)
    time.sleep(0.3)
    over.set()
    asking.join()
    return worst.value, max(0, peak - before)


def nobody_knows(server: Server) -> None:
    """64 MiB of JSON without a token."""
    server.ask("POST", "/agent/store", b'{"key":"x","a":[' + b"{}," * ((64 * 2**20 - 40) // 3) + b"0]}", known=False)


def again_and_again(server: Server) -> None:
    """Three clients without a token, 8 MiB each time."""
    body = b'{"key":"x","a":[' + b"{}," * 2_600_000 + b"0]}"
    until = time.monotonic() + 3.0

    def send() -> None:
        while time.monotonic() < until:
            server.ask("POST", "/agent/sync", body, known=False)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def unfinished(server: Server) -> None:
    """A hundred bodies of 1 MiB each that never end."""
    held = []
    for _ in range(100):
        connection = socket.create_connection((server.host, server.port))
        known = f"Host: x\r\nAuthorization: Bearer nobody\r\nContent-Length: {2**21}"
        head = f"POST {rest.address('/jobs')} HTTP/1.1\r\n{known}\r\n\r\n"
        with suppress(OSError):  # refused already
            connection.sendall(head.encode() + b" " * 2**20)
        held.append(connection)
    time.sleep(1.0)
    for connection in held:
        connection.close()


def patterns(server: Server) -> None:
    """A pattern of 4 kB that is dear to compile."""
    spec = {"command": "true", "name": "p", "metrics": {"pattern": "(?i)(?P<a>x)" + "[a-\U0010ffff]" * 800}}
    server.ask("POST", rest.address("/jobs"), json.dumps({"spec": spec, "hold": "x", "code": {}}).encode())


def batch(jobs: int) -> Callable[[Server], None]:
    """So many jobs in one request."""

    def send(server: Server) -> None:
        one = {"origin": {"directory": "/tmp", "variables": {"PATH": os.defpath}}, "code": {}, "hold": "x"}
        many = [{**one, "spec": {"command": "true", "name": "sweep", "params": {"seed": n}}} for n in range(jobs)]
        server.ask("POST", rest.address("/jobs/batch"), json.dumps({"jobs": many}).encode())

    return send


def main() -> None:
    """One server, one attack after the other."""
    given = common.options(__doc__ or "", n=3, quick_n=1)
    report = common.Report("under_attack", "While a client is hostile or greedy", given)
    jobs = 1_000 if given.quick else 10_000
    attacks: dict[str, Callable[[Server], None]] = {
        "64 MiB of JSON, no token": nobody_knows,
        "8 MiB of JSON by three clients for 3 s, no token": again_and_again,
        "100 bodies that never end": unfinished,
        "a pattern of 4 kB": patterns,
        f"a batch of {jobs:,} jobs": batch(jobs),
    }
    rows, slowest_s, most_bytes = [], 0.0, 0
    for name, attack in attacks.items():
        with serving.fresh_home() as home:
            serving.start(home)
            server = Server(home)
            seen = [attacked(server, attack) for _ in range(given.n)]
        slowest, grown = common.median([one[0] for one in seen]), max(one[1] for one in seen)
        report.keep(name, [one[0] for one in seen])
        slowest_s, most_bytes = max(slowest_s, slowest), max(most_bytes, grown)
        rows.append((name, common.ms(slowest), f"{grown / 1e6:.0f} MB", common.ms(max(one[0] for one in seen))))
    report.table(("attack", "slowest /healthz, median of runs", "memory, at most", "slowest of all"), rows)
    report.goal("everybody else is answered", slowest_s, GOAL_S)
    report.goal("more memory", most_bytes, GOAL_BYTES, show=lambda count: f"{count / 1e6:.0f} MB")
    report.finish()


if __name__ == "__main__":
    main()
