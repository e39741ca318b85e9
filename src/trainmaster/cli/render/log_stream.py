"""Prints the logs of several ranks on one output: rank 0 unmarked, other lines as `[1] …`, roles with their names."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from trainmaster.cli.render.output import Output

Keep = Callable[[str], bool]
_LINE_MAX = 4096  # characters of an unterminated line that are held back
# On a terminal, a program may color its text and clear its line, as progress bars do. Everything else (moving the cursor,
# setting the title, the clipboard, queries that the terminal answers) is shown as text and not executed.
_HARMLESS = re.compile(r"\x1b\[(?:[0-9;:]{0,40}m|[0-2]?K)")
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def rank_count(job: Mapping[str, Any]) -> int:
    """The largest number of ranks of a job. Attempts may differ, with a choice of GPUs or of the number of nodes."""
    need = job["spec"]["resources"]
    had = [len(attempt["nodes"]) for attempt in job.get("attempts", ())]
    nodes = max(had or (need["nodes"], need.get("nodes_max", 0)))
    return int(nodes) * max(int(one["ranks"]) for one in need.get("choices") or (need,))


def program_count(job: Mapping[str, Any]) -> int:
    """How many programs print: the ranks and the roles."""
    return rank_count(job) + len(job["spec"].get("roles") or ())


def escape_controls(text: str) -> str:
    """`text` with control sequences shown as text, except line breaks, tabs, backspaces and colors."""
    if _CONTROL.search(text) is None:
        return text
    kept, at = [], 0
    for match in _HARMLESS.finditer(text):
        kept += [_CONTROL.sub(_shown, text[at : match.start()]), match.group()]
        at = match.end()
    return "".join([*kept, _CONTROL.sub(_shown, text[at:])])


def uncolored(text: str) -> str:
    """`text` without colors and commands to clear a line; other control sequences are shown as text."""
    return escape_controls(_HARMLESS.sub("", text))


def _shown(match: re.Match[str]) -> str:
    return "^[" if match.group() == "\x1b" else match.group().encode("unicode_escape").decode()


class Lines(NamedTuple):
    """Which lines are printed (None: all), and what is printed before each of them: the name of a job, its time."""

    job: str = ""
    keep: Keep | None = None
    times: bool = False


class _Line(NamedTuple):
    """A line and when it was written; None: not known."""

    text: str
    time_s: float | None


_ALL = Lines()


class _ProgramText:
    """Writes what programs print. On a terminal its control sequences are not executed, unless it is `raw`."""

    def __init__(self, out: Output, raw: bool) -> None:
        self._out = out
        self._tame = out.terminal and not raw
        self._colored = False
        self.line_done = True

    def write(self, text: str) -> None:
        if text:
            if self._tame:
                text = escape_controls(text)
                self._colored = self._colored or "\x1b" in text
            self._out.raw(text)
            self.line_done = text.endswith("\n")

    def reset_colors(self) -> None:
        if self._colored:
            self._out.raw("\x1b[0m")
            self._colored = False

    def end_line(self) -> None:
        if not self.line_done and self._out.terminal:
            self._out.raw("\n")
            self.line_done = True


class LogPrinter:
    """Prints chunks. With `marking`, each attempt after the first is announced on standard error.

    With several programs, a name, times or a condition, whole lines are printed, else every piece as it comes.
    """

    def __init__(self, out: Output, ranks: int = 1, marking: bool = True, raw: bool = False, lines: Lines = _ALL) -> None:
        self._out, self._marking = out, marking
        self._by_line = ranks > 1 or lines != _ALL
        self._wanted = lines
        self._text = _ProgramText(out, raw)
        self._attempt: int | None = None
        self._open: dict[tuple[int, str], _Line] = {}  # unfinished lines by (attempt, source), if lines are printed
        self._untimed: set[int] = set()  # attempts without times; each is noted once

    def page(self, chunks: Sequence[Mapping[str, Any]]) -> None:
        """Print new chunks."""
        for chunk in chunks:
            rank = "" if chunk["rank"] == 0 else str(chunk["rank"])  # rank 0 has no mark
            whose = chunk.get("role") or rank
            if self._wanted.times:
                self._note_untimed(chunk)
            if self._out.json:
                self._value(chunk, whose)
            else:
                self._chunk(chunk, whose)

    def _note_untimed(self, chunk: Mapping[str, Any]) -> None:
        attempt = int(chunk["attempt"])
        if attempt not in self._untimed and all(time_s is None for _, time_s in chunk["times"]):
            self._untimed.add(attempt)
            job = self._wanted.job
            whose = f"of attempt {attempt} of {job}" if job else f"of attempt {attempt}"
            self._out.note(f"times of lines {whose} are not known: an older version ran it, or they could not be written")

    def _value(self, chunk: Mapping[str, Any], whose: str) -> None:
        """Print a chunk as JSON, with the lines to print."""
        job, keep, times = self._wanted
        shown = dict(chunk)
        if keep is not None:
            lines = [line for line in self._whole(chunk, whose) if keep(line.text)]
            shown["text"] = "".join(f"{line.text}\n" for line in lines)
            if times:
                groups = groupby(line.time_s for line in lines)
                shown["times"] = [[len(list(same)), time_s] for time_s, same in groups]
        if not times:
            shown.pop("times", None)
        if shown["text"]:
            self._out.stream({**({"job": job} if job else {}), **shown})

    def _chunk(self, chunk: Mapping[str, Any], whose: str) -> None:
        attempt = int(chunk["attempt"])
        if self._attempt is not None and attempt != self._attempt:
            self.finish()
            if self._marking:
                self.end_line()
                job = self._wanted.job
                self._out.note(f"--- {job} attempt {attempt} ---" if job else f"--- attempt {attempt} ---")
        self._attempt = attempt
        if self._by_line:
            self._lines(whose, self._whole(chunk, whose))
        else:
            self._text.write(str(chunk["text"]))

    def _whole(self, chunk: Mapping[str, Any], whose: str) -> list[_Line]:
        """The lines that are complete with a chunk. What is left waits for the rest of its line, if it is not too long."""
        key = int(chunk["attempt"]), whose
        before = self._open.pop(key, None)
        times = (time_s for count, time_s in chunk.get("times") or () for _ in range(count))
        *lines, begun = (_Line(text, next(times, None)) for text in str(chunk["text"]).split("\n"))
        if before is not None:
            first, *rest = [*lines, begun]
            *lines, begun = _Line(before.text + first.text, before.time_s), *rest
        if len(begun.text) > _LINE_MAX:
            return [*lines, begun]
        if begun.text:
            self._open[key] = begun
        return lines

    def _lines(self, whose: str, lines: Sequence[_Line]) -> None:
        job, keep, times = self._wanted
        mark = (f"{job} | " if job else "") + (f"[{whose}] " if whose else "")
        kept = [line for line in lines if keep is None or keep(line.text)]
        self._text.write("".join(f"{mark}{_stamp(line.time_s) if times else ''}{line.text}\n" for line in kept))

    def finish(self) -> None:
        """Print unfinished lines."""
        unfinished, self._open = sorted(self._open.items()), {}
        for (attempt, whose), line in unfinished:
            if not self._out.json:
                self._lines(whose, [line])
            elif self._wanted.keep is not None:
                rank = int(whose or 0) if whose.isdecimal() or not whose else -1
                role = whose if rank < 0 else None
                text, times = f"{line.text}\n", [[1, line.time_s]]
                self._value({"attempt": attempt, "rank": rank, "role": role, "text": text, "times": times}, whose)
        self._text.reset_colors()

    @property
    def at_line_start(self) -> bool:
        """Whether the output is at the start of a line."""
        return self._text.line_done

    def end_line(self) -> None:
        """Start a new line on a terminal if the program left one unfinished."""
        self._text.end_line()


def _stamp(time_s: float | None) -> str:
    """A time as RFC 3339 has it, in this machine's zone; a dash if it is not known."""
    try:
        shown = "-" if time_s is None else time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time_s))
    except (OverflowError, ValueError, OSError):  # a program may give its log any date
        shown = "-"
    return f"{shown[:-2]}:{shown[-2:]} " if len(shown) > 1 else f"{shown:<25} "
