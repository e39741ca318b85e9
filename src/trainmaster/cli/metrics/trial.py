"""What would be read from a log as a rank's output, and of which lines with numbers nothing is."""

import re
from typing import Any, BinaryIO, NamedTuple

from trainmaster.agent.files.following import Lines
from trainmaster.agent.metric_files.event_file import EventFile
from trainmaster.agent.metric_files.rows import Rows
from trainmaster.agent.metrics.line_text import plain
from trainmaster.agent.metrics.output import LINE_MAX
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.agent.metrics.vocabulary import measured
from trainmaster.cli.render.line_pattern import suggested

_CHUNK = 1 << 20  # bytes of a line that are read at once
_LATER_MAX = 3  # lines of each shape after the first
_READ_MAX = 200  # lines that a suggested pattern is tried on
_FEW = 5  # lines: somebody asks how to read just these
_SHAPES_MAX = 1000  # different unread lines that are told apart
_NUMERIC = re.compile(r"[A-Za-z_)\]%] {0,2}[:=] {0,2}[-+]?\d|\d\.\d")
_SETTING = re.compile(r"[|>*\- ]{0,40}[A-Za-z][\w./-]{0,60} {0,2}[:=] {0,2}[-+.\w]{1,30}")
_NAME = re.compile(r"[A-Za-z][\w@/.-]{0,60}")
_SEARCHED = 500  # characters
_DIGITS = re.compile(r"\d+")
_SETS = re.compile(r"(?i)(?<![a-z])(train|val|test|eval|dev)")  # of the data
_TALK = re.compile(r"(?i)\bwarn(?:ing)?s?\b|warning:|\bdeprecat|\A {0,8}(?:file \"|(?:hyper)?param(?:eter)?s: |config: )")
_PART = re.compile(r" {0,80}\([\w-]{1,60}\): .{0,300}\)\s*\Z")  # of a printed model


class Reading(NamedTuple):
    """What was read from a line."""

    line: int
    step: int | None
    values: dict[str, float]
    rule: str


class Trial:
    """A log as it would be read from a rank. `unread`: lines with numbers that gave nothing, by their shape.

    `stepless`: the first lines with values of the same names that belong to no step, the number of the first, and the names.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._output = Lines(LINE_MAX)
        self._waits: int | None = None  # the line whose reading is reported later
        self.lines = 0
        self.readings: list[Reading] = []
        self.unread: dict[str, dict[str, Any]] = {}
        self.stepless: tuple[int, set[str], list[str]] = 0, set(), []
        self._later: dict[str, list[str]] = {}  # of each shape, a few lines after the first
        self._read: list[str] = []  # the first lines with values
        self._bars: dict[str, str] = {}  # the name of each value in a bar, and the first bar with it

    def read(self, file: BinaryIO) -> None:
        """Read all lines."""
        for part in iter(lambda: file.readline(_CHUNK), b""):
            self._pieces(self.lines + 1, self._output.feed(part))
            self.lines += part.endswith(b"\n")
        rest = self._output.finish()
        self.lines += bool(rest)
        self._pieces(self.lines, rest)
        last = self._parser.rest()
        if last is not None:
            self._add(self.lines, last)

    def _pieces(self, line: int, pieces: list[bytes]) -> None:
        """Read the pieces of a line that overwrite each other."""
        before, numeric = len(self.readings), ""
        for piece in filter(None, pieces):
            found = self._parser.parse(piece)
            if found is not None:
                self._add(line, found)
                self._note_stepless(line, found, plain(piece))
                self._read += [plain(piece)] if found[1] and len(self._read) < _READ_MAX else []
            if not self._parser.waits:
                self._waits = None
            elif self._waits is None:
                self._waits = line
            text = plain(piece)
            numeric = text if _NUMERIC.search(text) else numeric
        if numeric and len(self.readings) == before and self._waits is None:
            self._miss(line, numeric)

    def read_rows(self, file: BinaryIO, path: str) -> None:
        """Read a file that a program writes row by row."""
        rows = Rows(path)
        for self.lines, line in enumerate(iter(lambda: file.readline(_CHUNK), b""), 1):
            found = rows.read(line)
            if found is not None:
                self.readings.append(Reading(self.lines, *found, "row"))

    def read_events(self, path: str) -> None:
        """Read a file of TensorBoard's. Raises: OSError, ValueError."""
        for self.lines, found in enumerate(EventFile(path).news(), 1):
            self.readings.append(Reading(self.lines, *found, "event"))

    def _note_stepless(self, line: int, found: tuple[int | None, dict[str, float]], text: str) -> None:
        if self._parser.rule == "progress bar" and self._bars.keys().isdisjoint(found[1]):
            self._bars.update(dict.fromkeys(found[1], text))
        at, names, texts = self.stepless
        alike = found[0] is None and found[1] and (not names or names == found[1].keys())
        if alike and len(texts) <= _LATER_MAX and all(one.step is None for one in self.readings):
            self.stepless = at or line, set(found[1]), [*texts, text]

    def _add(self, line: int, found: tuple[int | None, dict[str, float]]) -> None:
        at, self._waits = (line if self._waits is None else self._waits), None
        self.readings.append(Reading(at, *found, self._parser.rule))

    def _miss(self, line: int, text: str) -> None:
        if _TALK.search(text[:_SEARCHED]) or _PART.match(text):
            return  # its numbers measure nothing
        text = text.strip()
        shape = _shape(text)
        if shape in self.unread:
            self.unread[shape]["times"] += 1
            if len(self._later[shape]) < _LATER_MAX:
                self._later[shape].append(text)
        elif len(self.unread) < _SHAPES_MAX:
            self.unread[shape] = {"line": line, "times": 1, "text": text}
            self._later[shape] = []

    def suggested(self, unread: dict[str, Any], given: str | None) -> str | None:
        """A pattern that reads an unread line, those like it, and those of a `given` pattern; of no other set of the data."""
        text, sets = unread["text"], _SETS.findall(unread["text"])
        others = [one["text"] for one in self.unread.values() if _SETS.findall(one["text"]) != sets]
        return suggested(text, self._later[_shape(text)], given, [*self._read, *others])

    def suggested_step(self, given: str | None) -> str | None:
        """A pattern that reads those without a step with one. None if it misses some: those between which a bar is drawn."""
        _, _, texts = self.stepless
        stepped = texts and all(one.step is None for one in self.readings)
        pattern = suggested(texts[0], texts[1:], given, bars=list(self._bars.values())) if stepped else None
        if pattern is None or "step" not in compiled(pattern).groupindex:
            return None
        return pattern if all(map(compiled(pattern).search, texts)) else None

    def may_measure(self, unread: dict[str, Any]) -> bool:
        """Whether a line may say something that was measured. A setting is printed once, or again with the same value."""
        texts = [unread["text"], *self._later[_shape(unread["text"])]]
        setting = len(texts) == 1 or len({*texts}) < len(texts) or (len(texts) < _LATER_MAX and _SETTING.fullmatch(texts[0]))
        return not setting or self.lines <= _FEW or is_named(unread)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics, in the order in which they appear. `steps`: of how many different ones their points are."""
        found: dict[str, dict[str, Any]] = {}
        steps: dict[str, set[int]] = {}
        last = None
        for reading in self.readings:
            last = last if reading.step is None else reading.step
            for name, value in reading.values.items():
                one = found.setdefault(name, {"name": name, "points": 0, "steps": 0, "first_step": last, "first": value})
                of = steps.setdefault(name, set())
                of.update(() if last is None else (last,))
                one.update(points=one["points"] + 1, steps=len(of), last_step=last, last=value)
        return list(found.values())


def _shape(text: str) -> str:
    """The same for lines that differ in their numbers only."""
    return _DIGITS.sub("#", " ".join(text.split()))


def is_named(unread: dict[str, Any]) -> bool:
    """Whether the line has the name of something measured."""
    return any(map(measured, _NAME.findall(unread["text"][:_SEARCHED])))
