"""`tm metrics JOB…`: a summary of the metrics of jobs, or all points as a table."""

import csv
import io
import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.cli.whole_file import whole_file
from trainmaster.client.metric_table import COLUMNS, metrics_table
from trainmaster.errors import OperationError, UsageError
from trainmaster.recovery.lost_work import of_metric
from trainmaster.wire import rest
from trainmaster.wire.names import METRICS_MISSING, UNRECORDED

_HEADERS = ("JOB", "METRIC", "POINTS", "FIRST", "LAST", "LOWEST", "HIGHEST", "LAST STEP")


@click.command()
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
    names = [map(human.csv_cell, table[name]) for name in COLUMNS[:2]]
    writer.writerows(zip(*names, *(table[name] for name in COLUMNS[2:]), strict=True))
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
    begins: dict[tuple[str, str], dict[int, int]] = {}  # of each attempt, the first step: after its values without
    for *of, step, attempt in zip(*(table[column] for column in ("job", "metric", "step", "attempt")), strict=True):
        firsts = begins.setdefault((of[0], of[1]), {})
        if step is not None:
            firsts.setdefault(attempt, step)
    works = {(job, name): lost_work(jobs[job], name, firsts) for (job, name), firsts in begins.items()}
    rows, lost = [], False
    for job, name, step, value, attempt in zip(*(table[column] for column in (*COLUMNS[:4], COLUMNS[-1])), strict=True):
        at = begins[job, name].get(attempt, math.inf) if step is None else step
        if any(attempt < later and at >= begin for later, begin in works[job, name]):
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
        what = "value or its step" if any(row[-1] == "-" and not row[1].startswith("system/") for row in rows) else "value"
        session.out.note(f"a printed {what} is missing? tm logs {rows[0][0]} --rank 0 | tm metrics try -")
    elif unread:
        how = f"no metric is recorded\nto see what is read from its output, and get a pattern that reads more: tm logs {unread}"
        session.out.note(f"{how} --rank 0 | tm metrics try -")


def lost_work(job: dict[str, Any], name: str, firsts: dict[int, int]) -> Sequence[tuple[int, int]]:
    """(attempt, step): no model has what earlier attempts measured from there on. `job`: its detail; `firsts`: by attempt."""
    newest = job["metrics"].get(name)
    stepless = newest is not None and newest["step"] is None
    if stepless or name.startswith("system/") or ("/" in name and name.partition("/")[0] in job.get("own_counts", ())):
        return ()
    return of_metric([(later, begin) for later, begin in job.get("lost_work", ())], firsts)


def last_told(points: Sequence[tuple[int | None, float]], newest: dict[str, Any] | None) -> tuple[int | None, float]:
    """The point that was told last, as `tm show` and `tm compare` have it: its step need not be the highest."""
    step = newest["step"] if newest is not None else None
    return next((point for point in reversed(points) if point[0] == step), points[-1])
