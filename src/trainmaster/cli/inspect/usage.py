"""`tm usage`: shows resource usage and cost."""

import csv
import sys
import time
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Row
from trainmaster.errors import UsageError
from trainmaster.spec.cluster.zones import zone_of

_AMOUNTS = (
    "gpu_hours", "cpu_hours", "share", "jobs", "attempts", "running", "lost_gpu_hours", "lost_cpu_hours", "gpu_us", "cpu_us",
)  # fmt: skip
_HEADERS = {"gpu_hours": "gpu h", "cpu_hours": "cpu h", "lost_gpu_hours": "lost gpu h", "lost_cpu_hours": "lost cpu h"}


@click.command()
@click.option(
    "--by", default="project", show_default=True, metavar="WHAT",
    help="One or more, comma-separated, of project, member, class, experiment, pool, day, job.",
)  # fmt: skip
@click.option("--since", default="7d", show_default=True, metavar="WHEN", help="7d (ago), yesterday, 2026-11-30, or all.")
@click.option("--until", metavar="WHEN", help="Likewise, except all; default: now.")
@click.option("--project", help="Only this project.")
@click.option("--zone", help="Time zone of days and times: UTC, Europe/Berlin, +02:00; default: this machine's.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Lines.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@remote
def usage(session: Session, by: str, since: str, until: str | None, project: str | None, **form: Any) -> None:
    """Show GPU hours, CPU hours and cost of every attempt, from its placement until its nodes are free.

    CPU hours count jobs without GPUs. Lost is work that a later attempt repeated. Running attempts count up to now.
    """
    out, now_s = session.out, time.time()
    if form["as_csv"] and out.json:
        raise UsageError("--csv and --json contradict each other", "give one of them")
    if until == "all":
        raise UsageError("--until all has no meaning", "omit --until for all until now; from the beginning: --since all")
    zone = form["zone"] and zone_of(form["zone"])
    query = {"by": by, "since_s": times.moment(since, "--since", now_s, zone), "project": project, "limit": form["limit"]}
    until_s = None if until is None else times.moment(until, "--until", now_s, zone)
    query |= {"zone": form["zone"] or times.zone(), "until_s": until_s}
    found = session.client().usage(**query)
    if out.json:
        out.value(found)
    elif form["as_csv"]:
        _write_csv(found)
    elif not found["lines"]:
        out.note(f"nothing was charged{f' to project {project}' if project else ''} {_period(found)}")
    else:
        _draw(session, found)


def _draw(session: Session, found: Row) -> None:
    out, by, total = session.out, found["by"], found["total"]
    shown = [name for name in ("gpu_hours", "cpu_hours") if total[name]] or ["gpu_hours"]
    lost = [name for name in ("lost_gpu_hours", "lost_cpu_hours") if total[name]]
    headers = [*by, *(_HEADERS[name] for name in shown), "share %", "jobs", "attempts", *(_HEADERS[name] for name in lost)]
    headers += [f"cost {currency}" for currency in total["cost"]]
    lines = [*found["lines"], {**dict.fromkeys(by, ""), by[0]: "all", **total}] if len(found["lines"]) > 1 else found["lines"]
    rows = []
    for line in lines:
        row = [_heading(line[name]) for name in by] + [_hours(line[name]) for name in shown]
        row += [f"{100 * line['share']:.1f}", str(line["jobs"]), str(line["attempts"]), *(_hours(line[name]) for name in lost)]
        rows.append(row + [_money(line["cost"].get(currency, "0")) for currency in total["cost"]])
    spare = [headers.index(name) for name in (*(_HEADERS[name] for name in lost), "attempts", "jobs") if name in headers]
    out.table([header.upper() for header in headers], rows, spare=spare)
    if found["left_out"]:
        out.note(f"and {human.plural(found['left_out'], 'line')} more: --limit {len(found['lines']) + found['left_out']}")
    running = f"; {human.plural(total['running'], 'attempt')} still running, charged so far" if total["running"] else ""
    out.note(f"{_period(found)}{running}")


def _period(found: Mapping[str, Any]) -> str:
    """`from 2026-11-15 14:03 to now, days of Europe/Berlin`."""
    zone = zone_of(found["zone"])
    since = f"from {_time(found['since_s'], zone)}" if found["since_s"] else "from the beginning"
    days = f", days of {found['zone']}" if "day" in found["by"] else ""
    return f"{since} to {_time(found['until_s'], zone)}{days}"


def _time(time_s: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(time_s, zone).strftime("%Y-%m-%d %H:%M")


def _heading(value: str) -> str:
    return value or "-"


def _hours(value: float) -> str:
    """Three significant digits; whole numbers above a hundred."""
    return "-" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value: str) -> str:
    """Rounded to a hundredth; smaller amounts are shown as `< 0.01`."""
    amount = float(value)
    return "-" if not amount else f"{amount:,.2f}" if amount >= 0.005 else "< 0.01"


def _write_csv(found: Row) -> None:
    """Write every line with exact amounts; one column per currency."""
    currencies = list(found["total"]["cost"])
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*found["by"], *_AMOUNTS, *(f"cost_{currency}" for currency in currencies)])
    for line in found["lines"]:
        cost = [line["cost"].get(currency, "0") for currency in currencies]
        writer.writerow([*(human.csv_cell(line[name]) for name in found["by"]), *(line[name] for name in _AMOUNTS), *cost])
