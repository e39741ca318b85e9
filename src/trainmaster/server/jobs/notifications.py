"""Notifications about ended jobs: finds the ends in the event log, delivers, retries, and reports what could not be delivered.

What is still to be delivered is in a file of the home, written before a delivery. So a notification is lost by no crash of the
server; one that was under way may arrive twice.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.home import open_regular, write_atomic
from trainmaster.model.commands import WarnJob
from trainmaster.model.job import Job, State
from trainmaster.model.options.notify_targets import shown
from trainmaster.ports.store import NewRow
from trainmaster.server.jobs.deliveries import deliver
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.workers import NOTICES

BEAT_S = 2.0
RETRIES_S = (10.0, 60.0, 300.0, 1800.0)  # pauses between the tries
_AT_ONCE = 4
_OWED_MAX, _RECENT_MAX = 10_000, 1000
_JOBS_PER_STEP = 200
_SAVE_EVERY = 1000  # events: at most so many are read again after a restart


@dataclass(slots=True)
class Owed:
    """One notification that was not delivered yet."""

    job: str
    to: str
    tries: int = 0
    due_s: float = 0.0


@dataclass(slots=True)
class Notices:
    """How far the log was read, what is owed, and the last jobs whose end was seen."""

    after: int
    owed: list[Owed] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)


class NotificationLoop:
    """The background loop. `send(target, message)` returns why a delivery failed; None if it arrived."""

    def __init__(self, api: Runtime, send: Callable[[str, dict[str, Any]], str | None] | None = None) -> None:
        settings = api.services.configuration.notify
        self._api, self._file = api, api.services.home.root / "notifications.json"
        self._send = send or (lambda target, message: deliver(target, message, settings))
        self._notices: Notices | None = None
        self._first_seq = api.services.events.head().last_seq  # before the first request: no end is missed
        self._saved = -_SAVE_EVERY - 1  # event number in the file; the first step writes it

    async def step(self) -> float:
        """Find new ends, and deliver what is due. Returns the pause before the next step. Raises: OSError, OperationError."""
        notices = self._notices
        if notices is None:
            notices = self._notices = await asyncio.to_thread(self._load)
        more = len(notices.owed) < _OWED_MAX and await asyncio.to_thread(self._look, notices)  # else the log waits
        now_s = time.time()
        due = sorted((one for one in notices.owed if one.due_s <= now_s), key=lambda one: one.tries)[:_AT_ONCE]
        if due:
            await asyncio.gather(*(self._try(notices, one) for one in due))
            await asyncio.to_thread(self._save, notices)
        return 0.0 if more or len(due) == _AT_ONCE else BEAT_S

    def _load(self) -> Notices:
        """The state on disk. Ends before the first start are not notified. Raises: OSError, ValueError."""
        try:
            with open_regular(self._file) as file:
                told = json.loads(file.read())
        except FileNotFoundError:
            return Notices(self._first_seq)
        after = min(int(told["after"]), self._api.services.events.head().last_seq)  # the log may be an older copy
        return Notices(after, [Owed(**one) for one in told["owed"]], list(told["recent"]))

    def _save(self, notices: Notices) -> None:
        """Raises: OSError."""
        write_atomic(self._file, json.dumps(asdict(notices)).encode())
        self._saved = notices.after

    def _look(self, notices: Notices) -> bool:
        """Add what the newest ends owe. Returns whether there may be more. Raises: OSError, OperationError."""
        events = self._api.services.events
        ended, last_seq = events.ends_after(notices.after, _JOBS_PER_STEP)
        found = False
        for job in events.jobs_by_id([id for id in ended if id not in notices.recent]).values():
            targets = owed_by(job)
            if targets:
                notices.owed += [Owed(job.id, target) for target in targets]
                notices.recent.append(job.id)
                found = True
        notices.after = last_seq
        if found or last_seq - self._saved > _SAVE_EVERY:
            notices.recent = notices.recent[-_RECENT_MAX:]
            self._save(notices)
        return len(ended) == _JOBS_PER_STEP

    async def _try(self, notices: Notices, one: Owed) -> None:
        """Try one delivery; plan the next try, or report that it was given up."""
        job = await asyncio.to_thread(self._api.services.events.job, one.job)
        why = None if job is None else await NOTICES.run(self._send, one.to, message(job))
        if why is None:
            notices.owed.remove(one)
            if one.tries:
                await self._warn(one, "")
            return
        one.tries += 1
        more = one.tries <= len(RETRIES_S)
        if more:
            one.due_s = time.time() + RETRIES_S[one.tries - 1]
        else:
            notices.owed.remove(one)
        what = "it is tried again" if more else f"given up after {one.tries} tries"
        await self._warn(one, f"the notification to {shown(one.to)} was not delivered: {why}; {what}")

    async def _warn(self, one: Owed, text: str) -> None:
        """Report it in the job; an empty text withdraws the report."""
        topic = f"notification to {shown(one.to)}"[:100]
        await self._api.commands.accept([NewRow(f"notice-{os.urandom(12).hex()}", WarnJob(one.job, topic, text), time.time())])


def owed_by(job: Job) -> tuple[str, ...]:
    """The targets that are to be told about the job's end; none while it lives."""
    wanted = job.state.ended and (job.spec.notify.on == "end" or job.state is State.FAILED)
    return job.spec.notify.to if wanted else ()


def message(job: Job) -> dict[str, Any]:
    """A notification as JSON; `text` is one line for people."""
    failure = job.failure if job.state is not State.SUCCEEDED else None
    why = (failure.message if failure is not None else job.reason) if job.state is not State.SUCCEEDED else ""
    verb = "was" if job.state is State.CANCELLED else "has"
    first = why.splitlines()[0] if why else ""
    began_s, ended_s = job.span
    return {
        "text": f"{job.id} {verb} {job.state.value}" + (f": {first}" if first else ""),
        "job": job.id,
        "state": job.state.value,
        "reason": job.reason,
        "name": job.spec.name,
        "project": job.spec.project,
        "experiment": job.spec.experiment,
        "created_s": job.created_s,
        "started_s": began_s,
        "ended_s": ended_s,
        "exit_code": failure.exit_code if failure is not None else None,
        "signal": failure.signal if failure is not None else None,
    }


def notifying(api: Runtime) -> Callable[[], Awaitable[float]]:
    """The step of the background loop."""
    return NotificationLoop(api).step
