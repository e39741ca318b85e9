"""Crash test: kills the server's processes at random while jobs run, and checks that no job is lost or run twice.

Each rank records job, attempt, pid, start and end in its own file. At the end every acknowledged job must have ended exactly
once, and no two attempts of a job may overlap.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trainmaster import daemons, live_processes
from trainmaster.client.api import Client
from trainmaster.errors import TrainmasterError, UnreachableError
from trainmaster.home import Home
from trainmaster.wire.names import ENV_FAILPOINT
from trainmaster.wire.processes import start_ticks

T = TypeVar("T")

_WITNESS = (
    'f="{directory}/$TRAINMASTER_JOB.$TRAINMASTER_ATTEMPT.$$"; read up _ </proc/uptime; '
    'echo "$TRAINMASTER_JOB $TRAINMASTER_ATTEMPT $$ start $up" >>"$f"; {body}; read up _ </proc/uptime; '
    'echo "$TRAINMASTER_JOB $TRAINMASTER_ATTEMPT $$ end $up" >>"$f"'
)


@dataclass(frozen=True, slots=True)
class RankRecord:
    """The record of one rank. Times are seconds since boot; `end_s` is None for a rank that was killed."""

    job: str
    attempt: int
    pid: int
    start_s: float
    end_s: float | None


@dataclass(slots=True)
class Survival:
    """One trial on an empty `home`."""

    home: Home
    jobs: int = 50
    body: str = "sleep 0.05"
    options: daemons.Options = field(default_factory=daemons.Options)
    spec: dict[str, Any] = field(default_factory=dict)
    pause_s: float = 0.0  # between submits, so that kills hit them too
    cancelled: int = 0  # further jobs that are cancelled as soon as they are acknowledged
    acknowledged: dict[str, str] = field(default_factory=dict)  # idempotency key -> job id
    kills: list[str] = field(default_factory=list)

    @property
    def witnesses(self) -> Path:
        """Directory of the ranks' records."""
        return self.home.root / "witnesses"

    def run(self, instants: int, rng: random.Random, timeout_s: float = 240.0) -> list[str]:
        """Submit, kill at `instants` random instants, and wait for the end. Returns every violated law.

        At each instant at least one process is killed: dead ones are restarted first, as a person would do.
        """
        self.witnesses.mkdir(parents=True, exist_ok=True)
        daemons.start(self.home, self.options)
        submitter = threading.Thread(target=self._submit, daemon=True)
        submitter.start()
        for _ in range(instants):
            time.sleep(rng.uniform(0.02, 0.4))
            which = rng.choice([("api",), ("control",), ("api", "control")])
            while not self._kill(which):
                self._revive()
        submitter.join(timeout_s)
        ended = self._await_end(time.monotonic() + timeout_s)
        return self.problems(ended)

    def _client(self) -> Client:
        """A client. Raises: UnreachableError while no server runs."""
        info = live_processes.running(self.home)
        if info is None:
            raise UnreachableError("no server is running")
        return Client(info.url, self.home.token_file.read_text().strip())

    def _submit(self) -> None:
        for number in range(self.jobs + self.cancelled):
            key, cancel = f"survival-{number}", number >= self.jobs
            body = "sleep 60" if cancel else self.body
            command = _WITNESS.format(directory=self.witnesses, body=body)
            spec = {"command": command, "name": "w", "resources": {"cpus": 0.25}, **self.spec}
            submission = {"spec": spec, "origin": {"variables": {"PATH": os.defpath}}, "code": {}}
            self.acknowledged[key] = self._persist(lambda client: client.submit(submission, key))  # noqa: B023
            time.sleep(self.pause_s)
            if cancel:
                self._cancel(self.acknowledged[key])

    def _cancel(self, job: str) -> None:
        """Cancel a job once it runs."""
        while self._persist(lambda client: client.job(job))["state"] != "running":
            time.sleep(0.05)
        self._persist(lambda client: client.cancel(job))

    def _persist(self, ask: Callable[[Client], T]) -> T:
        """Retry until the request is acknowledged, as a client with an idempotency key does."""
        while True:
            try:
                with self._client() as client:
                    return ask(client)
            except (TrainmasterError, OSError):
                self._revive()

    def _revive(self) -> None:
        """Start the server if both processes are dead, as any command of a person would."""
        time.sleep(0.05)
        os.environ.pop(ENV_FAILPOINT, None)
        try:
            daemons.start(self.home)
        except TrainmasterError:
            time.sleep(0.2)

    def _kill(self, which: Sequence[str]) -> bool:
        """Kill those of `which` that run. Returns whether there was one."""
        before = len(self.kills)
        record = self.home.read_json(self.home.server_json) or {}
        for name in which:
            pid, ticks = record.get("pids", {}).get(name), record.get("ticks", {}).get(name)
            if pid is not None and start_ticks(pid) == ticks:
                os.kill(pid, signal.SIGKILL)
                self.kills.append(name)
        return len(self.kills) > before

    def _await_end(self, deadline_s: float) -> dict[str, dict[str, Any]]:
        """All jobs once the acknowledged ones have ended, or their state at the deadline."""
        jobs: dict[str, dict[str, Any]] = {}
        while time.monotonic() < deadline_s:
            jobs = {job["id"]: job for job in self._persist(lambda client: client.jobs(all=1))}
            states = [jobs.get(id, {}).get("state") for id in self.acknowledged.values()]
            if all(state in ("succeeded", "failed", "cancelled") for state in states):
                break
            time.sleep(0.1)
        return jobs

    def testimonies(self) -> list[RankRecord]:
        """The ranks' records."""
        found = []
        for path in sorted(self.witnesses.iterdir()):
            lines = [line.split() for line in path.read_text().splitlines()]
            if lines:
                job, attempt, pid, _, start = lines[0]
                end_s = float(lines[1][4]) if len(lines) > 1 and len(lines[1]) == 5 else None
                found.append(RankRecord(job, int(attempt), int(pid), float(start), end_s))
        return found

    def problems(self, jobs: dict[str, dict[str, Any]]) -> list[str]:
        """Every law that this trial violated."""
        found, wanted = [], self.jobs + self.cancelled
        if len(self.acknowledged) < wanted:
            found.append(f"only {len(self.acknowledged)} of {wanted} submits were ever acknowledged")
        if len(jobs) != wanted:
            found.append(f"{len(jobs)} jobs on record for {wanted} submitted")
        seen = self.testimonies()
        for number, id in enumerate(self.acknowledged.values()):
            state, expected = jobs.get(id, {}).get("state", "lost"), "succeeded" if number < self.jobs else "cancelled"
            if state != expected:
                found.append(f"{id} was acknowledged and is {state}, not {expected}")
            ends = sum(t.job == id and t.end_s is not None for t in seen)
            if ends != (number < self.jobs):
                found.append(f"{id} ran to its end {ends} times")
        return found + overlaps(seen)


def overlaps(seen: Sequence[RankRecord]) -> list[str]:
    """Ranks of different attempts, or two of one, that ran at the same time. A killed rank's end is not known: it is
    taken to have ended before the next began only if it did not write afterwards, which its file shows."""
    found = []
    for job in sorted({t.job for t in seen}):
        runs = sorted((t for t in seen if t.job == job), key=lambda t: t.start_s)
        for i, first in enumerate(runs):
            for second in runs[i + 1 :]:
                if first.end_s is not None and second.start_s < first.end_s - 0.011:  # /proc/uptime has two digits
                    found.append(f"{job}: attempt {first.attempt} and attempt {second.attempt} overlap")
    return found
