"""Prints the logs of several ranks on one output: rank 0 unmarked, other lines as `[1] …`, roles with their names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.cli.render.output import Output

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


def _shown(match: re.Match[str]) -> str:
    return "^[" if match.group() == "\x1b" else match.group().encode("unicode_escape").decode()


class LogPrinter:
    """Prints chunks. With `marking`, each attempt after the first is announced on standard error."""

    def __init__(self, out: Output, ranks: int = 1, marking: bool = True, raw: bool = False) -> None:
        self._out, self._several, self._marking = out, ranks > 1, marking
        self._tame = out.terminal and not raw
        self._coloured = False
        self._attempt: int | None = None
        self._open: dict[tuple[int, str], str] = {}  # unfinished lines by (attempt, source), if several programs print
        self._line_done = True

    def page(self, chunks: Sequence[Mapping[str, Any]]) -> None:
        """Print new chunks."""
        for chunk in chunks:
            if self._out.json:
                self._out.stream(dict(chunk))
            else:
                rank = "" if chunk["rank"] == 0 else str(chunk["rank"])  # rank 0 has no mark
                self._chunk(int(chunk["attempt"]), chunk.get("role") or rank, str(chunk["text"]))

    def _chunk(self, attempt: int, whose: str, text: str) -> None:
        if self._attempt is not None and attempt != self._attempt:
            self.finish()
            if self._marking:
                self.end_line()
                self._out.note(f"--- attempt {attempt} ---")
        self._attempt = attempt
        if not self._several:
            self._write(text)
            return
        text = self._open.pop((attempt, whose), "") + text
        done, newline, begun = text.rpartition("\n")
        if newline:
            self._lines(whose, done)
        if len(begun) > _LINE_MAX:
            self._lines(whose, begun)
        elif begun:
            self._open[attempt, whose] = begun

    def _lines(self, whose: str, text: str) -> None:
        mark = f"[{whose}] " if whose else ""
        self._write("".join(f"{mark}{line}\n" for line in text.split("\n")))

    def _write(self, text: str) -> None:
        if text:
            if self._tame:
                text = escape_controls(text)
                self._coloured = self._coloured or "\x1b" in text
            self._out.raw(text)
            self._line_done = text.endswith("\n")

    def finish(self) -> None:
        """Print unfinished lines."""
        for (_, whose), text in sorted(self._open.items()):
            self._lines(whose, text)
        self._open.clear()
        if self._coloured:
            self._out.raw("\x1b[0m")  # reset the program's colors
            self._coloured = False

    @property
    def at_line_start(self) -> bool:
        """Whether the output is at the start of a line."""
        return self._line_done

    def end_line(self) -> None:
        """Start a new line on a terminal if the program left one unfinished."""
        if not self._line_done and self._out.terminal:
            self._out.raw("\n")
            self._line_done = True
