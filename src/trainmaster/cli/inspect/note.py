"""`tm note`: writes and reads the logbook."""

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.session import Session, remote
from trainmaster.errors import OperationError, UsageError

_MARKS = {"note": "✎", "submitted": "·", "start": "▶", "resume": "↻", "crash": "✗", "damage": "✗", "best": "★", "end": "■"}
_PLAIN_MARKS = {
    "note": "#", "submitted": "-", "start": ">", "resume": "~", "crash": "x", "damage": "x", "best": "*", "end": "=",
}  # fmt: skip
_EDITED = "\n\n<!-- A note about {about}, in Markdown. The text between these marks is not stored. -->\n"


@click.command()
@click.argument("words", nargs=-1, metavar="[JOB] [TEXT]")
@click.option("--list", "listed", is_flag=True, help="Read the logbook: notes and events.")
@click.option("--notes", "notes_only", is_flag=True, help="With --list: only notes.")
@click.option("--experiment", help="The subject is an experiment.")
@click.option("--project", help="The subject is a project.")
@click.option("-n", "limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="With --list: how many.")
@remote
def note(  # noqa: PLR0913  a command's options
    session: Session,
    words: tuple[str, ...],
    listed: bool,
    notes_only: bool,
    experiment: str | None,
    project: str | None,
    limit: int,
) -> None:
    """Write a note about JOB, or about an experiment or a project; with --list read the logbook.

    TEXT is Markdown; - reads it from standard input; without TEXT your editor is opened. Job ids in it become links.
    """
    if listed or notes_only:
        if len(words) > 1:
            raise UsageError("--list takes one job at most", "write a note: tm note JOB TEXT")
        _read(session, {"job": words[0] if words else None, "experiment": experiment, "project": project,
                        "limit": limit, "notes": int(notes_only)})  # fmt: skip
        return
    given = {"experiment": experiment, "project": project}
    about = {name: value for name, value in given.items() if value is not None}
    rest = list(words)
    if not about:
        if not rest:
            raise UsageError("the note has no subject", 'tm note JOB "what I saw"; read the logbook: tm note --list')
        if len(rest) == 1 and len(rest[0].split()) > 1:
            raise UsageError(f"{rest[0][:40]!r} is no job", "name the job first: tm note JOB 'what I saw'")
        about = {"job": rest.pop(0)}
    if len(rest) > 1:
        raise UsageError(f"{len(rest)} texts are given", "quote the note: tm note JOB 'what I saw'")
    text = _text(rest[0] if rest else None, " ".join(about.values()))
    if not text.strip():
        raise UsageError("the note is empty: nothing was written", 'tm note JOB "what I saw"')
    taken = session.client(start=True).note(about, text)
    if session.out.json:
        session.out.value(taken)
    else:
        what = taken["job"] or taken["experiment"] or f"project {taken['project']}"
        option = what if taken["job"] else f"--experiment {what}" if taken["experiment"] else f"--project {taken['project']}"
        none = ", of which there is no job yet" if taken.get("jobless") else ""  # a server of an older version does not say
        session.out.note(f"noted about {what}{none}; read it: tm note --list {option}")


def _text(given: str | None, about: str) -> str:
    """The note's text: as given, from standard input, or from an editor. Raises: UsageError, OperationError."""
    if given == "-" or (given is None and not sys.stdin.isatty()):
        return sys.stdin.buffer.read().decode(errors="replace")
    return given if given is not None else _edited(about)


def _edited(about: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("there is no text, and no editor to write it in", 'tm note JOB "what I saw", or set EDITOR')
    descriptor, name = tempfile.mkstemp(prefix="note-", suffix=".md")
    path, template = Path(name), _EDITED.format(about=about)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(template)
        try:
            ended = subprocess.run([*shlex.split(editor), name], check=False).returncode
        except OSError as error:
            raise OperationError(f"the editor {editor} cannot be started: {error.strerror}", "set EDITOR") from error
        if ended:
            raise OperationError(f"the editor exited with code {ended}: nothing was written")
        text = path.read_text(errors="replace")
    finally:
        path.unlink(missing_ok=True)
    begin, _, rest = text.partition("<!-- A note about ")
    return begin + rest.partition("-->")[2]


def _read(session: Session, query: Mapping[str, Any]) -> None:
    out = session.out
    entries = session.client().logbook(**query)
    if out.json:
        out.value(entries)
        return
    if not entries:
        out.note('the logbook is empty; write into it: tm note JOB "what I saw"')
    marks = _MARKS if out.unicode else _PLAIN_MARKS
    day = ""
    for entry in entries:
        today = time.strftime("%Y-%m-%d", time.localtime(entry["at_s"]))
        if today != day:
            out.data(today)
            day = today
        for line in lines_of(entry, marks, query["job"] is None, out.width or 100):
            out.data(line)


def lines_of(entry: Mapping[str, Any], marks: Mapping[str, str], with_job: bool, width: int) -> list[str]:
    """An entry as lines: time, mark, job and author, text."""
    clock = time.strftime("%H:%M:%S", time.localtime(entry["at_s"]))
    whose = entry["job"] or (f"experiment {entry['experiment']}" if entry["experiment"] else f"project {entry['project']}")
    head = f"  {clock} {marks.get(entry['kind'], ' ')} " + (f"{whose}  " if with_job or not entry["job"] else "")
    head += f"{entry['by']}: " if entry["by"] and entry["kind"] == "note" else ""
    by = f" by {entry['by']}" if entry["by"] and entry["kind"] != "note" else ""
    rest = " " * 13
    lines: list[str] = []
    for paragraph in (entry["text"] + by).split("\n"):
        first = rest if lines else head
        wrapped = textwrap.wrap(paragraph, max(width, 40), initial_indent=first, subsequent_indent=rest, break_long_words=False)
        lines += wrapped or [""]
    linked = entry["links"] if entry["kind"] == "note" else []
    return lines + [f"{rest}→ {'   '.join(f'tm show {job}' for job in linked)}" for _ in linked[:1]]
