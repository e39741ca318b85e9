"""Requests, lines, patterns, globs, archives and cursors that nobody in their right mind sends: `make fuzz`, and shortly in tests/contract.

Requests are drawn from the server's own OpenAPI document: the largest legal bodies, legal ones, and illegal ones. What must hold: no
answer of 500 or more (503 with `Retry-After` is a word of a busy server), no answer that takes long, `/healthz` answers meanwhile, and
memory does not grow. What is drawn is replayed by its number: python tests/fuzzing.py --only N.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from hostile import ARCHIVES, Asked, Requests, json_request, largest, texts
from hostile_agent import AgentRequests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from trainmaster.agent.artifacts import kinds
from trainmaster.agent.files import formats
from trainmaster.agent.files.globs import Glob
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import PatternError, compiled
from trainmaster.errors import TrainmasterError
from trainmaster.server.streams.rank_logs import Cursor
from trainmaster.wire import rest

ANSWER_MAX_S = 20.0  # of the largest legal body; others take milliseconds
HELD_MAX_S = 1.0  # in which /healthz has to answer, whatever goes on
WORK_MAX_S = 1.0  # of one line, pattern, glob or archive, on a machine under load
GROWTH_MAX_BYTES = 96 * 2**20
REFS = ("digits-1", "digits", "many-5", "@last")
CONTROL_S = 30.0  # within which control takes up a command, on a machine under load
_ALL = settings(deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))



class Server:
    """A server under attack, and a thread that asks `/healthz` meanwhile."""

    def __init__(self, url: str, token: str, held_max_s: float = HELD_MAX_S) -> None:
        self._held_max_s = held_max_s
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=2 * ANSWER_MAX_S)
        self.document: dict[str, Any] = self.http.get(rest.address("/openapi.json")).json()
        self.loud = False
        self.asked, self.statuses, self.waits_s = 0, dict[int, int](), list[float]()
        self.slowest = (0.0, "")  # the longest wait for /healthz, and the request beside it
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, args=(url,), daemon=True)
        self._watch.start()

    def _look(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60.0) as http:
            while not self._over.wait(0.02):
                began = time.monotonic()
                http.get("/healthz").raise_for_status()
                self.waits_s.append(time.monotonic() - began)

    def send(self, asked: Asked) -> None:
        """Send a request, and hold its answer against what must be. Raises: AssertionError."""
        began, before = time.monotonic(), len(self.waits_s)
        if self.loud:
            print(f"{time.strftime('%T')} {asked!r}"[:200], flush=True)
        with self.http.stream(asked.method, asked.path, params=asked.params, content=asked.body, headers=asked.headers) as answer:
            if "event-stream" not in answer.headers.get("content-type", ""):
                answer.read()
        took_s = time.monotonic() - began
        self.asked += 1
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        busy = answer.status_code == 503 and "retry-after" in answer.headers
        assert answer.status_code < 500 or busy, f"{answer.status_code} to {asked!r}: {answer.text[:500]}"
        assert took_s < ANSWER_MAX_S, f"{took_s:.1f} s for {asked!r}"
        held_s = max(self.waits_s[before:], default=0.0)
        self.slowest = max(self.slowest, (held_s, f"{asked!r}"[:300]))
        assert held_s < self._held_max_s, f"/healthz took {held_s:.2f} s beside {asked!r}"
        assert self._watch.is_alive(), f"/healthz was not answered beside {asked!r}"

    def await_state(self, job: str, wanted: str) -> None:
        """Wait until control has brought a job so far. Raises: AssertionError."""
        until_s = time.monotonic() + CONTROL_S
        while (state := self.http.get(rest.address(f"/jobs/{job}")).json()["state"]) != wanted:
            assert time.monotonic() < until_s, f"{job} is {state}, not {wanted}, after {CONTROL_S:.0f} s"
            time.sleep(0.05)

    def close(self) -> None:
        """End the thread, too."""
        self._over.set()
        self._watch.join(60.0)
        self.http.close()


def work(line: str, pattern: str, glob: str, path: str) -> None:
    """What an agent does with text. Raises: AssertionError for what takes too long."""
    began = time.thread_time()
    Parser().parse(line.encode("utf-8", "replace"))
    with suppress(PatternError):
        Parser(compiled(pattern)).parse(line.encode("utf-8", "replace"))
    matcher = Glob(glob or "x", "/nowhere")
    matcher.owns(path)
    matcher.step(path)
    took_s = time.thread_time() - began
    assert took_s < WORK_MAX_S, (took_s, line[:80], pattern, glob, path)


def decode(cursor: str) -> None:
    """A cursor of logs is one, or is refused."""
    with suppress(TrainmasterError):
        Cursor.decode(cursor)


def examine(directory: Path) -> None:
    """Every archive, as an agent does."""
    for number_of, make in enumerate(ARCHIVES):
        place = directory / f"{number_of}.pt"
        place.write_bytes(make())
        began = time.thread_time()
        formats.examine(str(place))
        kinds.kind_of(str(place), "model.pt", "model", False)
        assert time.thread_time() - began < 5 * WORK_MAX_S, f"archive {number_of}"
        place.unlink()


def request(number: int, anybody: Requests, agent: AgentRequests) -> Asked:
    """The request of a number: one of four is an agent's."""
    return agent.draw(number) if number % 4 == 0 else anybody.draw(number)


def rounds(server: Server, refs: Sequence[str], agent: AgentRequests, first: int, examples: int) -> None:
    """One round of requests and of texts. Raises: AssertionError, with the number that `--only` takes."""
    drawn = Requests(server.document, refs)

    @seed(first)
    @settings(_ALL, max_examples=examples)
    @given(st.integers(0, 2**62))
    def each(number: int) -> None:
        server.send(request(number, drawn, agent))
        line, pattern, glob, path, cursor = texts(number)
        work(line, pattern, glob, path)
        decode(cursor)

    each()


@contextmanager
def _own_server() -> Iterator[tuple[Server, Path]]:
    """A whole server on a home of its own, whose one node is drained."""
    with tempfile.TemporaryDirectory(prefix="tm-fuzz-") as root:
        home = Path(root) / "home"
        server = None
        try:
            _tm(home, "up", "--nodes", "1")
            url = json.loads((home / "server.json").read_text())["url"]
            server = Server(url, (home / "token").read_text().strip())
            _tm(home, "nodes", "drain", "node0")
            yield server, home
        finally:
            if server is not None:
                server.close()
            _tm(home, "down", "--cancel")


def _tm(home: Path, *arguments: str) -> str:
    tm = str(Path(sys.executable).with_name("tm"))
    run = subprocess.run([tm, *arguments], env={**os.environ, "TRAINMASTER_HOME": str(home)}, cwd=home.parent, check=True, stdout=subprocess.PIPE)
    return run.stdout.decode()


def _agent(server: Server, home: Path) -> AgentRequests:
    """The agent of a job that runs: one of a round of its own, since anything may be cancelled in one."""
    _tm(home, "nodes", "resume", "node0")
    job = json.loads(_tm(home, "submit", "--json", "--name", "live", "--priority", "100", "--cpus", "0.01", "--", "sleep", "86400"))["id"]
    server.await_state(job, "running")
    _tm(home, "nodes", "drain", "node0")
    return AgentRequests((home / "secret").read_bytes(), f"{job}.1/n0")


def main() -> None:
    """Until the minutes are over, or something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; default: by the clock")
    parser.add_argument("--loud", action="store_true", help="each request as it is sent")
    parser.add_argument("--only", type=int, default=None, help="one request and one line of text, by the number of a failure")
    given_by = parser.parse_args()
    first = int(time.time()) if given_by.seed is None else given_by.seed
    with _own_server() as (server, home), tempfile.TemporaryDirectory() as scratch:
        processes = [one for one in psutil.process_iter(["cmdline"]) if {"trainmaster.server", str(home)} <= set(one.info["cmdline"] or ())]
        began, memory = time.monotonic(), list[int]()
        submit = json_request("/jobs", {"spec": {"command": "true", "name": "digits"}, "hold": "fuzzed"})
        server.send(submit)
        server.loud = given_by.loud
        if given_by.only is not None:
            server.send(request(given_by.only, Requests(server.document, REFS), _agent(server, home)))
            work(*texts(given_by.only)[:4])
            return
        for asked in largest():
            server.send(asked)
        examine(Path(scratch))
        while time.monotonic() - began < given_by.minutes * 60:
            print(f"seed {first}: {server.asked} requests {dict(sorted(server.statuses.items()))}", flush=True)
            rounds(server, REFS, _agent(server, home), first, 500)
            memory.append(sum(one.memory_info().rss for one in processes))
            first += 1
        settled = max(memory[: max(1, len(memory) // 3)])
        waits = sorted(server.waits_s)
        print(f"{server.asked} requests in {time.monotonic() - began:.0f} s: {dict(sorted(server.statuses.items()))}")
        print(f"/healthz: worst {1000 * waits[-1]:.0f} ms, 99 % {1000 * waits[int(0.99 * len(waits))]:.0f} ms")
        print(f"the worst one was beside {server.slowest[1]}")
        print(f"memory of the server: {settled / 2**20:.0f} MiB after a third of the time, {memory[-1] / 2**20:.0f} MiB at the end")
        assert memory[-1] < settled + GROWTH_MAX_BYTES, "memory grows"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "contract"))
    main()
