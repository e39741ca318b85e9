"""`tm metrics try FILE`: what would be read from a program's output, by which rule, and how to read more."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click

from trainmaster.agent.metric_files.advice import pattern_for
from trainmaster.agent.metric_files.event_file import is_event_file
from trainmaster.agent.metric_files.rows import ENDINGS
from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled
from trainmaster.cli.metrics.trial import Reading, Trial, is_named
from trainmaster.cli.render import human
from trainmaster.cli.session import Session, offline
from trainmaster.errors import OperationError, UsageError
from trainmaster.spec.fields.values import pattern_fault

_SHOWN = 10  # lines of each table
_TAKEN = "the names in it are those of the metrics; a job takes it as --metrics-pattern"


@click.command("try")
@click.argument("file")
@click.option("--pattern", help="A regular expression with named groups, as metrics.pattern in a spec.")
@click.option("--only", is_flag=True, help="Read only what the pattern matches, as metrics.automatic: false in a spec.")
@click.option("--all", "everything", is_flag=True, help="Print every line that was read, not only the first ones.")
@offline
def try_file(session: Session, file: str, pattern: str | None, only: bool, everything: bool) -> None:
    """Show what would be read from a log as steps and metrics.

    FILE is what the program printed; `-` reads standard input. Of a .csv or .jsonl file, or one of
    TensorBoard's, it shows what --metrics-file reads.
    Nothing is recorded, and no server is needed. Lines that have numbers but gave nothing are listed, too.

    \b
    tm metrics try train.log
    python train.py 2>&1 | tm metrics try -
    tm metrics try train.log --pattern 'it (?P<step>\\d+): (?P<loss>[\\d.]+)'
    """
    if only and pattern is None:
        raise UsageError("--only reads what the pattern matches, and there is none", "add --pattern, or leave --only out")
    trial = Trial(Parser(None if pattern is None else compiled(_accepted(pattern)), automatic=not only))
    try:
        with ExitStack() as stack:
            opened = sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb"))
            if is_event_file(file):
                trial.read_events(file)
            else:
                trial.read_rows(opened, file) if file.endswith(ENDINGS) else trial.read(opened)
    except ValueError as error:
        raise OperationError(f"{file} cannot be read: {error}", "name another file") from error
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
    if trial.metrics() and (file.endswith(ENDINGS) or is_event_file(file)):
        session.out.note(f"a job takes it as --metrics-file {shlex.quote(pattern_for(file))}")


def _accepted(pattern: str) -> str:
    """Raises: UsageError."""
    fault = pattern_fault(pattern)
    if fault is not None:
        raise UsageError(fault, r"example: --pattern 'step (?P<step>\d+) loss (?P<loss>[\d.]+)'")
    return pattern


def _told(session: Session, trial: Trial, everything: bool, pattern: str | None) -> Iterator[str]:
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
    stepped = trial.suggested_step(pattern)
    if stepped is not None:
        yield f"these have no step; if a number in line {trial.stepless[0]} counts the steps:"
        yield f"tm metrics try FILE --pattern {shlex.quote(stepped)}"
        yield _TAKEN
    elif missed:
        yield from _advice(trial, missed, bool(found), pattern)


def _advice(trial: Trial, missed: list[dict[str, Any]], found: bool, given: str | None) -> Iterator[str]:
    """How to read a frequent line, best one that names something measured. `given`: the pattern that was tried."""
    likely = sorted((one for one in missed if trial.may_measure(one)), key=lambda one: not is_named(one))[:_SHOWN]
    example = next(((one, pattern) for one in likely if (pattern := trial.suggested(one, given))), None)
    if example is None:
        if not found:
            name = "a pattern" if given is None else "another pattern"
            yield rf"to read one with {name}: tm metrics try FILE --pattern 'step (?P<step>\d+) loss (?P<loss>[\d.]+)'"
        return
    (one, pattern), also = example, "also " if found else ""
    yield f"to {also}read line {one['line']} and those like it: tm metrics try FILE --pattern {shlex.quote(pattern)}"
    yield _TAKEN


def _step(step: int | None) -> str:
    return "-" if step is None else str(step)


def _steps(metric: dict[str, Any]) -> str:
    first, last = metric["first_step"], metric["last_step"]
    several = f" ({human.plural(metric['steps'], 'step')})" if metric["steps"] < metric["points"] else ""
    return _step(last) if first == last else f"{_step(first)} to {_step(last)}{several}"


def _values(reading: Reading) -> str:
    return "  ".join(f"{name}={human.number(value)}" for name, value in reading.values.items()) or "-"
