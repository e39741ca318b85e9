"""Follows one job to its end: its output, a progress line on a terminal, its restarts, and how it ended."""

import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from trainmaster.cli.render import human, progress
from trainmaster.cli.render.log_stream import LogPrinter, program_count
from trainmaster.cli.render.timeline import given, resumed_line, saved_place
from trainmaster.cli.session import Session
from trainmaster.client.api import ENDED, Row
from trainmaster.client.filters import LogFilter
from trainmaster.errors import JOB_FAILED_EXIT

_HOLD_S = 1.0  # how long to wait for new log text before checking the job
_LOOK_S = 0.5  # how often to check the job while there is new log text
_DRAW_S = 0.2


class LiveLine:
    """A progress line at the bottom of a terminal. Does nothing if standard error is not a terminal."""

    def __init__(self, wanted: bool) -> None:
        self._on = wanted and sys.stderr.isatty()
        self._shown = ""
        self._drawn_s = 0.0

    @property
    def width(self) -> int:
        """Available columns."""
        return shutil.get_terminal_size((80, 24)).columns - 1

    def draw(self, text: str, now_s: float) -> None:
        """Show `text`, at most a few times per second."""
        if self._on and text != self._shown and now_s - self._drawn_s >= _DRAW_S:
            sys.stderr.write("\r\x1b[K" + human.printable(text))
            sys.stderr.flush()
            self._shown, self._drawn_s = text, now_s

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self._on and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown, self._drawn_s = "", 0.0


class Announcer:
    """Announces each change of a job once, in one line: the reason for waiting, ended attempts, restarts."""

    def __init__(self) -> None:
        self._given: dict[int, str | None] = {}  # announced ends of attempts -> the checkpoint that was named
        self._words: dict[int, str | None] = {}  # attempts -> what was announced of their evidence
        self._reason = ""

    def lines(self, job: Row) -> list[str]:
        """What is new."""
        lines = [line for attempt in job["attempts"] for line in self._of_attempt(job, attempt)]
        reason = str(job["reason"] or "") if job["state"] in ("queued", "held") else ""
        if reason and reason != self._reason:
            lines.append(waiting_line(job, reason))
        self._reason = reason
        return lines

    def _of_attempt(self, job: Row, attempt: Row) -> Iterator[str]:
        number = attempt["number"]
        if attempt["state"] in ("restarted", "requeued") and number not in self._given:
            after = [one for one in job["attempts"] if one["number"] > number and one["started_s"] is not None]
            self._given[number], place = (after[0]["resumed_from"], given(after[0])) if after else newest(job)
            yield ended_line(attempt, place)
        checkpoint, word = attempt["resumed_from"], attempt.get("resumed_evidence")
        if checkpoint is not None and checkpoint != self._given.get(number - 1, checkpoint) and word == "unknown":
            yield evidence_line(attempt)
            self._given[number - 1] = checkpoint
        decided = word in ("seen", "against") or (word == "unknown" and attempt["ended_s"] is not None)
        if decided and self._words.get(number) != word:
            yield evidence_line(attempt)
            self._words[number] = word


class Follower:
    """Follows one job. `rank`: the rank whose output is shown; None for all."""

    def __init__(self, session: Session, id: str, rank: int | None) -> None:
        self._id, self._rank = id, rank
        self._client, self._out = session.client(start=True), session.out
        self._line = LiveLine(not self._out.json and not self._out.quiet)
        self._meter = progress.Meter()
        self._job: Row = {}
        self._looked_s = 0.0
        self._announcer = Announcer()

    def follow(self) -> int:
        """Follow until the end; returns the exit code."""
        self._look()
        ranks = 1 if self._rank is not None else program_count(self._job)
        self._meter.total = progress.total_steps(self._job["spec"]["params"])
        printer = LogPrinter(self._out, ranks, marking=False)
        query = LogFilter(rank=self._rank, wait_s=_HOLD_S)
        while True:
            page = self._client.persistently(lambda: self._client.logs(self._id, **query))
            query["after"] = page["cursor"]
            if page["chunks"]:
                self._line.clear()
                if any(chunk["attempt"] > self._job["attempt"] for chunk in page["chunks"]):
                    self._look()  # announce the end of the previous attempt first
                    self._announce(printer)
                if not self._out.quiet:
                    printer.page(page["chunks"])
                self._read(page["chunks"])
            if page["ended"] and not page["chunks"]:
                break
            if time.monotonic() - self._looked_s >= _LOOK_S:
                self._look()
                self._announce(printer)
            self._draw(printer)
        printer.finish()
        printer.end_line()
        self._line.clear()
        self._look()
        self._announce(printer)
        return self._end()

    @property
    def job(self) -> Row:
        """Everything about the job, as it was read last."""
        return self._job

    def close(self) -> None:
        """Remove the progress line."""
        self._line.clear()

    def _look(self) -> None:
        self._job = self._client.persistently(lambda: self._client.job(self._id))
        self._looked_s = time.monotonic()
        self._meter.report(self._job["step"], self._looked_s)

    def _read(self, chunks: list[dict[str, Any]]) -> None:
        now_s = time.monotonic()
        for chunk in chunks:
            if chunk["rank"] == (self._rank or 0):
                self._meter.read(chunk["text"], now_s)

    def _draw(self, printer: LogPrinter) -> None:
        if self._job["state"] not in ENDED and printer.at_line_start:
            primary = self._job["spec"]["metrics"]["primary"]
            self._line.draw(progress.line(self._job, self._meter, primary, self._line.width), time.monotonic())

    def _announce(self, printer: LogPrinter) -> None:
        lines = self._announcer.lines(self._job)
        if lines and not self._out.quiet:
            self._line.clear()
            printer.end_line()
            for line in lines:
                self._out.note(line)

    def _end(self) -> int:
        job, out = self._job, self._out
        if out.json:
            out.stream(job)
        else:
            out.note(summary(job))
        return 0 if job["state"] == "succeeded" else JOB_FAILED_EXIT


def newest(job: Row) -> tuple[str | None, str]:
    """The newest checkpoint that a restart uses first, and what a person calls it: `step 120`; None and "" without any."""
    own = job["checkpoints"]
    found = next((one for one in reversed(own) if one["good"]), None)
    if found is None and own:  # it is read once more
        return own[-1]["id"], f"checkpoint {own[-1]['id']}, which was found damaged"
    origin = job.get("lineage")
    if found is None and origin and origin["checkpoint"]:  # a fork starts again from what it was forked from
        place = f"checkpoint {origin['checkpoint']}" if origin["step"] is None else _step(origin)
        return f"{origin['owner']}:{origin['checkpoint']}", f"{place} of {origin['job']}"
    if found is None:
        return None, ""
    if found["step"] is not None:
        return found["id"], _step(found)
    if found.get("after_s") is None:  # an agent or a server of an older version
        return found["id"], f"checkpoint {found['id']}"
    return found["id"], saved_place(found["id"], found["at_least"], found)


def _step(of: Row) -> str:
    """`step 120`, `about step 120`."""
    return f"{'about ' if of.get('approximate') else ''}step {of['step']}"


def ended_line(attempt: Row, place: str) -> str:
    """`attempt 1 ended: rank 1 was killed by SIGKILL; restarting, given step 120`."""
    why = str(attempt["message"] or attempt["cause"] or attempt["state"]).splitlines()[0].rstrip(".")
    what = f", given {place}" if place else ", given no checkpoint: there is none" if attempt["started_s"] else ""
    after = "back in the queue, will start" if attempt["state"] == "requeued" else "restarting"
    return f"attempt {attempt['number']} ended: {why}; {after}{what}"


def evidence_line(attempt: Row) -> str:
    """`attempt 2 resumed from step 120: its first step was 121`, `attempt 2 was given step 120, but …`."""
    line = resumed_line(attempt)
    return f"attempt {attempt['number']} {'was ' if line.startswith('given') else ''}{line}"


def waiting_line(job: Row, reason: str) -> str:
    """`queued: waiting for 2 GPUs`, `held by ada: not yet; release it: tm release digits-14`."""
    said = reason if reason.startswith(str(job["state"])) else f"{job['state']}: {reason}"
    release = "to start it without waiting" if job.get("start") else "release it"
    return said + (f"; {release}: tm release {job['id']}" if job["state"] == "held" else "")


def summary(job: Row) -> str:
    """One line: how the job ended, after how long, its last step, and the next command to type."""
    took = human.duration((job["ended_s"] or time.time()) - (job["started_s"] or job["created_s"]))
    name, value = progress.chosen(progress.values_of(job), job["spec"]["metrics"]["primary"])
    restarts = sum(job["restarts"].values())
    parts = [
        f"step {job['step']}" if job["step"] is not None else "",
        f"{name} {progress.last_text(job, name, value)}" if name is not None else "",
        human.plural(restarts, "restart") if restarts else "",
    ]
    told = ", ".join(part for part in parts if part)
    failure = job["failure"]
    why = f": {str(failure['message']).splitlines()[0]}" if failure and job["state"] != "succeeded" else ""
    return f"{job['id']} {job['state']} after {took}{why}" + (f" ({told})" if told else "") + f"; next: tm show {job['id']}"


def detached(session: Session, id: str) -> None:
    """Say that the job keeps running, and how to follow it again."""
    session.out.note(f"\ndetached: {id} keeps running; follow it: tm logs -f {id}   cancel it: tm cancel {id}")
