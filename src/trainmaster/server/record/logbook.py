"""Builds logbook entries from notes and attempts. Pure. Entries about attempts are derived on each read, not stored.

A run gets a "best" entry if its primary metric exceeds every run submitted before it, at the time of its best value: one
entry per run, not one per improvement. An earlier run may reach its own best value later.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from trainmaster.model.job import DAMAGED, Action, Attempt, Job, State
from trainmaster.model.spec import Mode
from trainmaster.ports.store import Note
from trainmaster.server.record.curves import Best

_ID = re.compile(r"(?<![\w./-])([A-Za-z0-9][\w.-]*-[0-9]+)(?![\w/-]|\.\w)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
TEXT_MAX_BYTES = 64 * 1024
LINKS_MAX = 100  # per note


@dataclass(frozen=True, slots=True)
class Entry:
    """One logbook entry. `links` are the jobs that its text mentions, other than its own."""

    at_s: float
    kind: str  # note, submitted, start, resume, crash, best, end
    text: str  # Markdown
    project: str
    experiment: str | None
    job: str | None = None
    by: str = ""
    links: tuple[str, ...] = ()


def storable_text(text: str) -> str:
    """The text of a note as it is stored: uniform line ends, terminal control characters escaped."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip()
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def mentioned(text: str) -> list[str]:
    """Possible job ids in a text, in order, at most `LINKS_MAX`."""
    return list(islice(dict.fromkeys(_ID.findall(text)), LINKS_MAX))


def note_entry(note: Note, known: set[str]) -> Entry:
    """The entry for a note. Mentioned ids become links if the jobs exist."""
    noted = note.noted
    links = tuple(id for id in mentioned(noted.text) if id in known and id != note.job)
    return Entry(noted.at_s, "note", noted.text, noted.project, noted.experiment, note.job, noted.by, links)


def job_entries(job: Job, attempts: Sequence[Attempt]) -> list[Entry]:
    """The events of a job: submitted, started, resumed, crashed, ended."""
    origin = job.lineage.job if job.lineage is not None else None
    made = f"submitted, made from {origin}" if origin else "submitted"
    made += "" if job.urgent is None else f" as urgent ({job.urgent.by}: {job.urgent.reason})"
    entries = [replace(_of(job, job.created_s, "submitted", made), by=job.owner, links=(origin,) if origin else ())]
    for attempt in attempts:
        entries += _attempt_entries(job, attempt)
    entries += [_of(job, one.since_s, "damage", one.text) for one in job.troubles if one.topic == DAMAGED]
    _, ended_s = job.span
    if ended_s is not None:
        reason = "" if job.reason in ("", job.state.value) or job.state is State.SUCCEEDED else f": {job.reason}"
        entries.append(_of(job, ended_s, "end", f"{job.state.value}{reason}"))
    return entries


def _attempt_entries(job: Job, attempt: Attempt) -> Iterable[Entry]:
    nodes = ", ".join(dict.fromkeys(share.node for share in attempt.allocation.shares))
    began_s, ended_s = attempt.span
    if began_s is not None:
        if attempt.restored is not None:
            about = "about " if attempt.resumed_about else ""
            unknown = attempt.resumed_from_step is None or attempt.resumed_saved is not None
            step = f"checkpoint {attempt.restored}" if unknown else f"{about}step {attempt.resumed_from_step}"
            yield _of(job, began_s, "resume", f"attempt {attempt.number} is given {step} on {nodes}")
        else:
            again = "starts" if attempt.number == 1 else "is given no checkpoint and starts"
            yield _of(job, began_s, "start", f"attempt {attempt.number} {again} on {nodes}")
    verdict = attempt.verdict
    if verdict is not None and ended_s is not None and (attempt.failure or verdict.action is Action.REQUEUE):
        why = attempt.failure.message if attempt.failure is not None else verdict.reason
        yield _of(job, ended_s, "crash", f"attempt {attempt.number} ended: {why} ({verdict.action.value})")


def best_entries(jobs: Sequence[Job], metric: str, mode: Mode, best: Mapping[str, Best], among: str = "") -> list[Entry]:
    """Entries for jobs that exceeded all earlier ones of `jobs`, which are in order of submission.

    `among`: says which jobs of the experiment were looked at, if not all were.
    """
    entries: list[Entry] = []
    record: tuple[float, str] | None = None
    for job in jobs:
        found = best.get(job.id)
        if found is None:
            continue
        step, value, time_s = found
        better = record is None or (value < record[0] if mode is Mode.MIN else value > record[0])
        if not better:
            continue
        before = "" if record is None else f"; of the runs submitted before it: {record[0]:.6g} by {record[1]}"
        links = () if record is None else (record[1],)
        at = "before its first step" if step is None else f"at step {step}"
        text = f"best of {job.spec.experiment} up to this run{among}: {metric} {value:.6g} {at}{before}"
        entries.append(replace(_of(job, time_s, "best", text), links=links))
        record = (value, job.id)
    return entries


def _of(job: Job, at_s: float, kind: str, text: str) -> Entry:
    return Entry(at_s, kind, text, job.spec.project, job.spec.experiment, job.id)
