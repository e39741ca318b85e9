"""`tm ps`: lists jobs, newest first. The server filters; sorting and columns are done here."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from trainmaster.cli.inspect import server_troubles
from trainmaster.cli.render import human, times
from trainmaster.cli.render.progress import chosen, last_text, values_of
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import STATES, Row
from trainmaster.client.filters import JobFilter
from trainmaster.errors import OperationError, UsageError

_STATE = click.Choice(STATES)


class Column(NamedTuple):
    """A column of the table: its header, a job's cell, and the value that it is sorted by (None: at the end)."""

    header: str
    cell: Callable[[Row, float], str]
    key: Callable[[Row, float], Any]


def _field(name: str, header: str = "") -> Column:
    return Column(header or name.upper(), lambda job, now_s: str(job.get(name) or "-"), lambda job, now_s: job.get(name))


def _date(name: str, header: str) -> Column:
    return Column(header, lambda job, now_s: _moment(job[name]), lambda job, now_s: job[name])


def _moment(time_s: float | None) -> str:
    return "-" if time_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def elapsed_s(job: Row, now_s: float) -> float | None:
    """The time from a job's first start to its end, or until now; None before it has started."""
    if job["started_s"] is None:
        return None
    until_s = now_s if job["ended_s"] is None else job["ended_s"]
    return max(0.0, float(until_s) - float(job["started_s"]))


def _elapsed(job: Row, now_s: float) -> str:
    seconds = elapsed_s(job, now_s)
    return "-" if seconds is None else human.duration(seconds) if seconds >= 0.1 else "0 s"


def _age(job: Row, now_s: float) -> str:
    """How long ago it ended, else since when it runs or waits."""
    began_s = job["started_s"] or job["created_s"]
    return human.ago(job["ended_s"], now_s) if job["ended_s"] else human.short(max(0.0, now_s - began_s))


def _metric(job: Row, now_s: float) -> str:
    values, primary = values_of(job), job.get("primary")  # a server of an older version does not say
    name, value = chosen(values, primary if primary in values else None)
    return "-" if name is None else f"{name} {last_text(job, name, value).partition(',')[0]}"


def _where(job: Row, now_s: float) -> str:
    """Where it runs, or why it does not."""
    place = job.get("stalled") or ", ".join(job["nodes"])  # a server of an older version does not say
    where = place if job["state"] in ("running", "starting") else "" if job["state"] == "succeeded" else str(job["reason"])
    return str(where or place)


def _tags(job: Row, now_s: float) -> str:
    return " ".join(f"{name}={value}" for name, value in job["tags"].items()) or "-"


COLUMNS = {
    "id": Column("ID", lambda job, now_s: str(job["id"]), lambda job, now_s: job["seq"]),
    "state": Column("STATE", lambda job, now_s: str(job["state"]), lambda job, now_s: STATES.index(job["state"])),
    "try": Column("TRY", lambda job, now_s: str(job["attempt"] or "-"), lambda job, now_s: job["attempt"]),
    "step": Column("STEP", lambda job, now_s: "-" if job["step"] is None else str(job["step"]), lambda job, now_s: job["step"]),
    "metric": Column("METRIC", _metric, lambda job, now_s: chosen(values_of(job), None)[1]),
    "elapsed": Column("ELAPSED", _elapsed, elapsed_s),
    "age": Column("AGE", _age, lambda job, now_s: -(job["ended_s"] or job["started_s"] or job["created_s"])),
    "where": Column("WHERE / WHY", _where, _where),
    "user": _field("member", "USER"),
    "name": _field("name"),
    "project": _field("project"),
    "experiment": _field("experiment"),
    "class": _field("class"),
    "priority": Column("PRIORITY", lambda job, now_s: str(job["priority"]), lambda job, now_s: job["priority"]),
    "tags": Column("TAGS", _tags, _tags),
    "submitted": _date("created_s", "SUBMITTED"),
    "started": _date("started_s", "STARTED"),
    "ended": _date("ended_s", "ENDED"),
    "nodes": Column("NODES", lambda job, now_s: ",".join(job["nodes"]) or "-", lambda job, now_s: len(job["nodes"])),
    "command": _field("command"),
}
SHORT = ("id", "state", "try", "step", "metric", "elapsed", "age", "where")
_MORE = ("name", "user", "project", "class", "priority", "tags")
_WIDE = ("id", *_MORE, *SHORT[1:])
_SPARE = ("elapsed", "metric", "step", "try")  # dropped on a narrow terminal, in this order


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="All jobs, not only the newest 50.")
@click.option("--state", multiple=True, type=_STATE, help="Only jobs in this state; may be repeated.")
@click.option("--user", "member", metavar="NAME", help="Only jobs of this user.")
@click.option("--mine", is_flag=True, help="Only your own jobs.")
@click.option("--tag", "tag", multiple=True, metavar="K[=V]", help="Only jobs with this tag; repeated: with all of them.")
@click.option("--name", help="Only jobs of this name; 'digits*': names that begin with digits.")
@click.option("--project", help="Only jobs of this project.")
@click.option("--experiment", help="Only jobs of this experiment.")
@click.option("--since", metavar="TIME", help="Only jobs submitted since: 2h, 7d, today, 2026-11-30.")
@click.option("--until", metavar="TIME", help="Only jobs submitted before.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, help="How many.", show_default=True)
@click.option("--sort", metavar="[-]COLUMN", help="Sort what is listed by a column; with a dash in front, the largest first.")
@click.option("--columns", metavar="NAME,…", help=f"These columns; +NAME adds to the usual ones. All: {', '.join(COLUMNS)}.")
@click.option("-w", "--wide", is_flag=True, help="More columns: name, user, project, class, priority, tags.")
@quiet_option()
@remote
def ps(session: Session, wide: bool, columns: str | None, sort: str | None, **filters: Any) -> None:
    """List jobs, newest first."""
    shown, query = _columns(columns, wide), _query(filters)
    key = None if sort is None else _column(sort.removeprefix("-"), "--sort")
    client, out, now_s = session.client(), session.out, time.time()
    jobs = client.jobs(**query)
    _check_filtered(jobs, query)
    if key is not None and sort is not None:
        jobs = _sorted(jobs, COLUMNS[key], now_s, sort.startswith("-"))
    filtered = len(query.keys() - {"limit", "all"}) > 0
    if out.json:
        out.value([{**job, "elapsed_s": elapsed_s(job, now_s)} for job in jobs])
        return
    if out.quiet:
        for job in jobs:
            out.data(job["id"])
        return
    if jobs:
        spare = [shown.index(name) for name in _SPARE if name in shown] if columns is None and not wide else []
        state = shown.index("state") if "state" in shown else None
        headers = [COLUMNS[name].header for name in shown]
        out.table(headers, [cells(job, now_s, shown) for job in jobs], state=state, spare=spare)
        if len(jobs) == query["limit"] and not query["all"]:
            out.note(f"the newest {query['limit']}{', sorted' * (sort is not None)}; all of them: tm ps --all")
    else:
        out.note("no such job; the others: tm ps" if filtered else "no jobs; submit one: tm run -- python train.py")
    server_troubles.tell(session, client)


def _query(filters: dict[str, Any]) -> JobFilter:
    """What the server is asked for. Raises: UsageError."""
    if filters["mine"] and filters["member"]:
        raise UsageError("--mine and --user contradict each other", "give one of them")
    query, now_s = JobFilter(limit=filters["limit"], all=int(filters["everything"])), time.time()
    for name in ("member", "name", "project", "experiment", "state", "tag"):
        if filters[name]:
            query[name] = filters[name]
    if filters["mine"]:
        query["mine"] = 1
    for name in ("since", "until"):
        if filters[name] is not None:
            query[f"{name}_s"] = times.moment(filters[name], f"--{name}", now_s)  # type: ignore[literal-required]
    return query


def _check_filtered(jobs: Sequence[Row], query: JobFilter) -> None:
    """Raises: OperationError if the server did not filter: an older version ignores what it does not know."""
    unknown = query.keys() & {"member", "mine", "name", "tag", "since_s", "until_s"}
    if unknown and any("member" not in job for job in jobs):
        raise OperationError(f"the server is of an older version, which does not filter by {sorted(unknown)[0]}", "update it")


def _columns(given: str | None, wide: bool) -> list[str]:
    """The names of the columns to show. Raises: UsageError."""
    usual = list(_WIDE if wide else SHORT)
    if given is None:
        return usual
    names = [name.strip().lower() for name in given.split(",") if name.strip()]
    known = [_column(name.removeprefix("+"), "--columns") for name in names]
    if not names or any(name.startswith("+") for name in names):
        known = [*usual[:-1], *(name for name in known if name not in usual), usual[-1]]  # the last one is the one to shorten
    return list(dict.fromkeys(known))


def _column(name: str, option: str) -> str:
    if name in COLUMNS:
        return name
    import difflib  # noqa: PLC0415  # needed for typing errors only

    near = difflib.get_close_matches(name, COLUMNS, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"{option}: there is no column {name!r}{meant}", f"there are {', '.join(COLUMNS)}")


def _sorted(jobs: Sequence[Row], column: Column, now_s: float, largest_first: bool) -> list[Row]:
    """Sorted by a column; jobs without a value there come last, and equal ones stay newest first."""
    keyed = [(column.key(job, now_s), job) for job in jobs]
    with_value = sorted((one for one in keyed if _has_value(one[0])), key=lambda one: one[0], reverse=largest_first)
    return [job for _, job in [*with_value, *(one for one in keyed if not _has_value(one[0]))]]


def _has_value(key: Any) -> bool:
    return key is not None and key == key  # NaN has no place in an order


def cells(job: Row, now_s: float, columns: Sequence[str] = SHORT) -> list[str]:
    """A job's cells."""
    return [COLUMNS[name].cell(job, now_s) for name in columns]
