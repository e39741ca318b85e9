"""Agents that send points: `ingest_load.py SOCKET LAUNCHES THREADS SECONDS PER_REQUEST ANSWER`.

LAUNCHES: the `launch.json` of each agent to speak for, joined by colons. Each thread has one connection and sends the next
request when the one before is answered. Writes {"points", "seconds", "latencies"} to ANSWER.
"""

import http.client
import json
import os
import socket
import sys
import threading
import time


class _Local(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def send(path: str, sender: tuple, until_s: float, per_request: int, latencies: list) -> None:
    """One connection's requests: one step of `per_request` metrics in each, of one rank (`sender`: its launch, its number)."""
    launch, number = sender
    connection = _Local(path)
    headers = {"Authorization": f"Bearer {launch['credential']}", "Content-Type": "application/json"}
    step = 0
    while time.monotonic() < until_s:
        step += 1
        values = {f"metric{n}": 1.0 / step + n for n in range(per_request)}
        points = [{"rank": number, "step": step, "values": values, "age_s": 0.0}]
        request = {"key": launch["key"], "reports": [], "points": points, "heartbeat": None, "wait_s": 0.0, "orders_seen": 0}
        began_s = time.perf_counter()
        connection.request("POST", "/agent/sync", json.dumps(request).encode(), headers)
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise SystemExit(f"{response.status}: {data!r}")
        latencies.append(time.perf_counter() - began_s)


def main() -> None:
    """Send, and write down."""
    path, launches, threads, seconds, per_request, answer = sys.argv[1:]
    agents = []
    for name in launches.split(":"):
        with open(name) as file:
            agents.append(json.load(file))
    began_s = time.monotonic()
    latencies: list = [[] for _ in range(int(threads))]
    until_s = began_s + float(seconds)
    senders = [(agents[n % len(agents)], 1 + n // len(agents)) for n in range(int(threads))]
    running = [
        threading.Thread(target=send, args=(path, sender, until_s, int(per_request), told))
        for sender, told in zip(senders, latencies, strict=True)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    took_s = time.monotonic() - began_s
    flat = [one for each in latencies for one in each]
    with open(answer + ".part", "w") as file:
        json.dump({"points": len(flat) * int(per_request), "seconds": took_s, "latencies": flat}, file)
    os.replace(answer + ".part", answer)


if __name__ == "__main__":
    main()
