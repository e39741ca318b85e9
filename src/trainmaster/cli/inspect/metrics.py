"""`tm metrics`: exports the metrics of jobs as a table."""

import csv
import io
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.metric_table import COLUMNS, metrics_table
from trainmaster.errors import OperationError, UsageError

_HEADERS = ("JOB", "METRIC", "POINTS", "FIRST", "LAST", "LOWEST", "HIGHEST", "LAST STEP")


class _MetricsGroup(click.Group):
    """A group in which an unknown subcommand is a job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`tm metrics JOB` is `tm metrics export JOB`."""
        known = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if known else ["export", *args])


@click.group(cls=_MetricsGroup)
def metrics() -> None:
    """Show or export the metrics of jobs.

    \b
    tm metrics digits-1 digits-2            a summary; the same as: tm metrics export digits-1 digits-2
    tm metrics digits-1 --csv > loss.csv    all points
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

    A row has the job, the metric, the step, the value, the time in seconds since the epoch, and the attempt. In Python:
    pandas.DataFrame(trainmaster.metrics_table("digits-1")).

    \b
    tm metrics digits-1 digits-2
    tm metrics digits-1 --metric loss --csv
    """
    out, as_csv, parquet = session.out, forms["as_csv"], forms["parquet"]
    if as_csv + out.json + (parquet is not None) > 1:
        raise UsageError("only one of --csv, --json and --parquet can be given")
    arrow = _arrow() if parquet is not None else None
    table = metrics_table(*jobs, metrics=names, system=system, client=session.client())
    if names and (lost := [name for name in names if name not in table["metric"]]):
        raise UsageError(f"no metric {lost[0]!r} in {', '.join(jobs)}", f"those that there are: tm metrics {' '.join(jobs)}")
    if arrow is not None:
        _write_parquet(arrow, table, Path(parquet))
        out.note(f"{parquet}: {human.plural(len(table['step']), 'point')}")
    elif as_csv:
        out.raw(_csv(table))
    elif out.json:
        values = [None if not math.isfinite(value) else value for value in table["value"]]
        columns = {**table, "value": values}
        out.value([dict(zip(COLUMNS, row, strict=True)) for row in zip(*(columns[name] for name in COLUMNS), strict=True)])
    else:
        _summarize(session, table)


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
        arrow.parquet.write_table(arrow.table(table), path)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error.strerror or error}", "choose another place") from error


def _summarize(session: Session, table: dict[str, list[Any]]) -> None:
    """One line per job and metric."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for job, name, step, value in zip(*(table[column] for column in COLUMNS[:4]), strict=True):
        found.setdefault((job, name), []).append((step, value))
    rows = []
    for (job, name), points in found.items():
        values = [value for _, value in points]
        finite = [value for value in values if math.isfinite(value)]
        told = (values[0], values[-1], min(finite, default=math.nan), max(finite, default=math.nan))
        rows.append([job, name, str(len(points)), *map(human.number, told), str(points[-1][0])])
    if rows:
        session.out.table(_HEADERS, rows)
    else:
        session.out.note("no metrics: nothing in the output was read as one")
