"""`tm metrics`: exports the metrics of jobs as a table. `tm metrics try` shows what would be read from a log, by which rule."""

import csv
import io
import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from trainmaster.agent.files.following import Lines
from trainmaster.agent.metrics.line_text import plain
from trainmaster.agent.metrics.output import LINE_MAX
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.agent.metrics.vocabulary import measured
from trainmaster.cli.render import human
from trainmaster.cli.render.line_pattern import suggested
from trainmaster.cli.session import JOB, Session, offline, remote
from trainmaster.cli.whole_file import whole_file
from trainmaster.client.metric_table import COLUMNS, metrics_table
from trainmaster.errors import OperationError, UsageError
from trainmaster.spec.fields.values import pattern_fault
from trainmaster.wire import rest
from trainmaster.wire.names import METRICS_MISSING, UNRECORDED

_CHUNK = 1 << 20  # bytes of a line that are read at once
_SHOWN, _LATER_MAX = 10, 3  # lines of each table, and of each shape after the first
_READ_MAX = 200  # lines that a suggested pattern is tried on
_FEW = 5  # lines: somebody asks how to read just these
_SHAPES_MAX = 1000  # different unread lines that are told apart
_NUMERIC = re.compile(r"[A-Za-z_)\]%] {0,2}[:=] {0,2}[-+]?\d|\d\.\d")
_SETTING = re.compile(r"[|>*\- ]{0,40}[A-Za-z][\w./-]{0,60} {0,2}[:=] {0,2}[-+.\w]{1,30}")
_NAME = re.compile(r"[A-Za-z][\w@/.-]{0,60}")
_SEARCHED = 500  # characters
_DIGITS = re.compile(r"\d+")
_TALK = re.compile(r"(?i)\bwarn(?:ing)?s?\b|warning:|\bdeprecat|\A {0,8}(?:file \"|(?:hyper)?param(?:eter)?s: |config: )")
_PART = re.compile(r" {0,80}\([\w-]{1,60}\): .{0,300}\)\s*\Z")  # of a printed model
_HEADERS = ("JOB", "METRIC", "POINTS", "FIRST", "LAST", "LOWEST", "HIGHEST", "LAST STEP")


class _Reading(NamedTuple):
    """What was read from a line."""

    line: int
    step: int | None
    values: dict[str, float]
    rule: str


class _Trial:
    """A log as it would be read from a rank. `unread`: lines with numbers that gave nothing, by their shape."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._output = Lines(LINE_MAX)
        self._waits: int | None = None  # the line whose reading is reported later
        self.lines = 0
        self.readings: list[_Reading] = []
        self.unread: dict[str, dict[str, Any]] = {}
        self._later: dict[str, list[str]] = {}  # of each shape, a few lines after the first
        self._read: list[str] = []  # the first lines with values

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
                self._read += [plain(piece)] if found[1] and len(self._read) < _READ_MAX else []
            if not self._parser.waits:
                self._waits = None
            elif self._waits is None:
                self._waits = line
            text = plain(piece)
            numeric = text if _NUMERIC.search(text) else numeric
        if numeric and len(self.readings) == before and self._waits is None:
            self._miss(line, numeric)

    def _add(self, line: int, found: tuple[int | None, dict[str, float]]) -> None:
        at, self._waits = (line if self._waits is None else self._waits), None
        self.readings.append(_Reading(at, *found, self._parser.rule))

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
        """A pattern that reads an unread line, those like it, and those of a `given` pattern."""
        return suggested(unread["text"], self._later[_shape(unread["text"])], given, self._read)

    def may_measure(self, unread: dict[str, Any]) -> bool:
        """Whether a line may say something that was measured. A setting is printed once, or again with the same value."""
        texts = [unread["text"], *self._later[_shape(unread["text"])]]
        setting = len(texts) == 1 or len({*texts}) < len(texts) or (len(texts) < _LATER_MAX and _SETTING.fullmatch(texts[0]))
        return not setting or self.lines <= _FEW or _is_named(unread)

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


class _MetricsGroup(click.Group):
    """A group in which an unknown subcommand is a job."""

    otherwise = "export"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`tm metrics JOB` is `tm metrics export JOB`."""
        known = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known else [self.otherwise, *args])


@click.group(cls=_MetricsGroup)
def metrics() -> None:
    """Show or export the metrics of jobs, or try what is read from a log.

    \b
    tm metrics digits-1 digits-2            a summary; the same as: tm metrics export digits-1 digits-2
    tm metrics digits-1 --csv > loss.csv    all points
    tm metrics try train.log                what would be read from a program's output
    """


@metrics.command()
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@click.option("--metric", "names", multiple=True, metavar="NAME", help="Only this metric; may be repeated.")
@click.option("--system", is_flag=True, help="Also metrics about the machine: system/cpu_percent, ...")
@click.option("--csv", "as_csv", is_flag=True, help="Print all points as CSV.")
@click.option("--parquet", type=click.Path(dir_okay=False), metavar="FILE", help="Write all points to a file; needs pyarrow.")
@remote
def export(session: Session, jobs: tuple[str, ...], names: tuple[str, ...], system: bool, **forms: Any) -> None:
    """Show a summary of the metrics of jobs, or export all points (--csv, --json, --parquet FILE).

    A row has the job, the metric, the step, the value, the time in seconds since the epoch, and the attempt. A value that
    came before the first step has none. In Python: pandas.DataFrame(trainmaster.metrics_table("digits-1")).

    \b
    tm metrics digits-1 digits-2
    tm metrics digits-1 --metric loss --csv
    """
    out, as_csv, parquet = session.out, forms["as_csv"], forms["parquet"]
    if as_csv + out.json + (parquet is not None) > 1:
        raise UsageError("only one of --csv, --json and --parquet can be given")
    arrow = _arrow() if parquet is not None else None
    table = metrics_table(*jobs, metrics=names, system=system, client=session.client())
    removed = [] if len({*table["job"]}) == len({*jobs}) else _removed(session, jobs, table)
    for job in removed:
        out.note(f"the points of {job}'s curves were removed to free space; the last values: tm show {job}")
    if names and (lost := [name for name in names if name not in table["metric"]]):
        raise UsageError(f"no metric {lost[0]!r} in {', '.join(jobs)}", f"those that there are: tm metrics {' '.join(jobs)}")
    if arrow is not None:
        _write_parquet(arrow, table, Path(parquet))
        out.note(f"{parquet}: {human.plural(len(table['step']), 'point')}")
    elif as_csv:
        out.raw(_csv(table))
    elif out.json:
        out.value(rest.worded([dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]))
    told = {job: session.client().job(job) for job in dict.fromkeys(table["job"] or jobs[: 0 if removed else 1])}
    if not (arrow or as_csv or out.json):
        _summarize(session, table, told, "" if removed else jobs[0])
    missing = [note for job in told.values() for note in job["notes"] if note.startswith(METRICS_MISSING)]
    missing += [f"{id}: {one['text']}" for id, job in told.items() for one in job["troubles"] if one["topic"] in UNRECORDED]
    for note in dict.fromkeys(missing):
        out.note(note)


def _removed(session: Session, refs: Sequence[str], table: dict[str, list[Any]]) -> list[str]:
    """The jobs of which the table has no point because they were removed."""
    jobs = [session.client().job(ref) for ref in refs]
    return [job["id"] for job in jobs if "metrics" in job.get("removed", ()) and job["id"] not in table["job"]]


def _csv(table: dict[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(table[name] for name in COLUMNS), strict=True))
    return text.getvalue()


def _arrow() -> Any:
    """The library that writes Parquet. Raises: OperationError."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        hint = "pip install pyarrow, or export CSV, which pandas and polars read too: --csv"
        raise OperationError("--parquet needs the package pyarrow, which is not installed here", hint) from error


def _write_parquet(arrow: Any, table: dict[str, list[Any]], path: Path) -> None:
    """Raises: OperationError."""
    try:
        with whole_file(path) as file:  # a name would make it say in its own words why that cannot be opened
            arrow.parquet.write_table(arrow.table(table), file)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error.strerror or error}", "choose another place") from error


def _summarize(session: Session, table: dict[str, list[Any]], jobs: dict[str, dict[str, Any]], unread: str) -> None:
    """One line per job and metric, without lost work. Points without a step are numbered: that is not shown as a step.

    `jobs`: the detail of each. `unread`: the job to look at if there is nothing; "" if it is told already why.
    """
    found: dict[tuple[str, str], list[tuple[int | None, float]]] = {}
    begins: dict[tuple[str, str, int], int] = {}  # the first step of each attempt, which is after its values without a step
    for *of, step, attempt in zip(*(table[column] for column in ("job", "metric", "step", "attempt")), strict=True):
        if step is not None:
            begins.setdefault((*of, attempt), step)
    rows, lost = [], False
    for job, name, step, value, attempt in zip(*(table[column] for column in (*COLUMNS[:4], COLUMNS[-1])), strict=True):
        if is_lost(jobs[job], name, begins.get((job, name, attempt), math.inf) if step is None else step, attempt):
            lost = True
        else:
            found.setdefault((job, name), []).append((step, value))
    for (job, name), points in found.items():
        numbers = [value for _, value in points if value == value]
        newest = jobs[job]["metrics"].get(name)
        step, value = last_told(points, newest)
        told = (points[0][1], value, min(numbers, default=math.nan), max(numbers, default=math.nan))
        at = "-" if newest and newest["step"] is None else str(step)
        rows.append([job, name, str(len(points)), *map(human.number, told), at])
    if rows:
        session.out.table(_HEADERS, rows)
        if lost:
            session.out.note(f"values that a restart made obsolete are left out; with them: tm metrics {' '.join(jobs)} --csv")
        session.out.note(f"a printed value is missing? tm logs {rows[0][0]} --rank 0 | tm metrics try -")
    elif unread:
        how = f"no metric is recorded\nto see what is read from its output, and get a pattern that reads more: tm logs {unread}"
        session.out.note(f"{how} --rank 0 | tm metrics try -")


def is_lost(job: dict[str, Any], name: str, step: float, attempt: int) -> bool:
    """Whether a later attempt began at this step or before it, so that no model has what was measured. `job`: its detail."""
    newest = job["metrics"].get(name)
    stepless = newest is not None and newest["step"] is None
    if stepless or name.startswith("system/") or ("/" in name and name.partition("/")[0] in job.get("own_counts", ())):
        return False
    return any(attempt < later and step >= begin for later, begin in job.get("lost_work", ()))


def last_told(points: Sequence[tuple[int | None, float]], newest: dict[str, Any] | None) -> tuple[int | None, float]:
    """The point that was told last, as `tm show` and `tm compare` have it: its step need not be the highest."""
    step = newest["step"] if newest is not None else None
    return next((point for point in reversed(points) if point[0] == step), points[-1])


@metrics.command("try")
@click.argument("file")
@click.option("--pattern", help="A regular expression with named groups, as metrics.pattern in a spec.")
@click.option("--only", is_flag=True, help="Read only what the pattern matches, as metrics.automatic: false in a spec.")
@click.option("--all", "everything", is_flag=True, help="Print every line that was read, not only the first ones.")
@offline
def try_file(session: Session, file: str, pattern: str | None, only: bool, everything: bool) -> None:
    """Show what would be read from a log as steps and metrics.

    FILE is what the program printed; `-` reads standard input. Nothing is recorded, and no server is needed. Lines that have
    numbers but gave nothing are listed, too.

    \b
    tm metrics try train.log
    python train.py 2>&1 | tm metrics try -
    tm metrics try train.log --pattern 'it (?P<step>\\d+): (?P<loss>[\\d.]+)'
    """
    if only and pattern is None:
        raise UsageError("--only reads what the pattern matches, and there is none", "add --pattern, or leave --only out")
    trial = _Trial(Parser(None if pattern is None else compiled(_accepted(pattern)), automatic=not only))
    try:
        with ExitStack() as stack:
            trial.read(sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb")))
    except OSError as error:
        raise OperationError(f"{file} cannot be read: {error.strerror}", "name a file, or - for standard input") from error
    if session.out.json:
        read = [reading._asdict() for reading in trial.readings]
        session.out.value(
            {"lines": trial.lines, "read": read, "metrics": trial.metrics(), "unread": list(trial.unread.values())}
        )
        return
    for line in _told(session, trial, everything, pattern):
        session.out.note(line)


def _accepted(pattern: str) -> str:
    """Raises: UsageError."""
    fault = pattern_fault(pattern)
    if fault is not None:
        raise UsageError(fault, r"example: --pattern 'step (?P<step>\d+) loss (?P<loss>[\d.]+)'")
    return pattern


def _told(session: Session, trial: _Trial, everything: bool, pattern: str | None) -> Iterator[str]:
    """Print the tables; yields the notes between them."""
    out, readings = session.out, trial.readings
    told = readings if everything else [one for one in readings if one.values] or readings
    shown = told if everything else told[:_SHOWN]
    if shown:
        out.table(("LINE", "STEP", "RULE", "READ"), [[str(one.line), _step(one.step), one.rule, _values(one)] for one in shown])
    if len(shown) < len(told):
        yield f"and {len(told) - len(shown)} more; all of them: --all"
    found = trial.metrics()
    if shown and found:
        out.data("")
    if found:
        rows = [
            [one["name"], str(one["points"]), _steps(one), human.number(one["first"]), human.number(one["last"])]
            for one in found
        ]
        out.table(("METRIC", "POINTS", "STEPS", "FIRST", "LAST"), rows)
    missed = sorted(trial.unread.values(), key=lambda one: -one["times"])
    if found and missed:
        out.data("")
    if missed:
        out.table(
            ("LINE", "TIMES", "HAS NUMBERS, GAVE NOTHING"),
            [[str(one["line"]), str(one["times"]), one["text"]] for one in missed[:_SHOWN]],
        )
    if len(missed) > _SHOWN:
        yield f"and {len(missed) - _SHOWN} more kinds of lines; all of them: --json"
    yield f"{human.plural(trial.lines, 'line')}, {len(readings)} read"
    if readings and not found:
        yield "only steps were read: no value with a name stood in these lines (a bar has values if its program sets them)"
    if missed:
        yield from _advice(trial, missed, bool(found), pattern)


def _advice(trial: _Trial, missed: list[dict[str, Any]], found: bool, given: str | None) -> Iterator[str]:
    """How to read a frequent line, best one that names something measured. `given`: the pattern that was tried."""
    likely = sorted((one for one in missed if trial.may_measure(one)), key=lambda one: not _is_named(one))[:_SHOWN]
    example = next(((one, pattern) for one in likely if (pattern := trial.suggested(one, given))), None)
    if example is None:
        if not found:
            name = "a pattern" if given is None else "another pattern"
            yield rf"to read one with {name}: tm metrics try FILE --pattern 'step (?P<step>\d+) loss (?P<loss>[\d.]+)'"
        return
    (one, pattern), also = example, "also " if found else ""
    yield f"to {also}read line {one['line']} and those like it: tm metrics try FILE --pattern {shlex.quote(pattern)}"
    yield "the names in it are those of the metrics; a job takes it as --metrics-pattern"


def _is_named(unread: dict[str, Any]) -> bool:
    """Whether the line has the name of something measured."""
    return any(map(measured, _NAME.findall(unread["text"][:_SEARCHED])))


def _step(step: int | None) -> str:
    return "-" if step is None else str(step)


def _steps(metric: dict[str, Any]) -> str:
    first, last = metric["first_step"], metric["last_step"]
    several = f" ({human.plural(metric['steps'], 'step')})" if metric["steps"] < metric["points"] else ""
    return _step(last) if first == last else f"{_step(first)} to {_step(last)}{several}"


def _values(reading: _Reading) -> str:
    return "  ".join(f"{name}={human.number(value)}" for name, value in reading.values.items()) or "-"
