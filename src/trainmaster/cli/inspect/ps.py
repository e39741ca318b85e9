"""`tm ps`: lists jobs, newest first. Never starts a server."""

import time
from typing import Any

import click

from trainmaster.cli.inspect import server_troubles
from trainmaster.cli.render import human
from trainmaster.cli.render.progress import chosen, last_text, values_of
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import STATES
from trainmaster.client.filters import JobFilter

_HEADERS = ("ID", "STATE", "TRY", "STEP", "METRIC", "AGE", "WHERE / WHY")
_STATE = click.Choice(STATES)
_SPARE = (_HEADERS.index("METRIC"), _HEADERS.index("STEP"), _HEADERS.index("TRY"))  # dropped on a narrow terminal


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="All jobs, not only the newest 50.")
@click.option("--state", multiple=True, type=_STATE, help="Only jobs in this state; may be repeated.")
@click.option("--project", help="Only jobs of this project.")
@click.option("-n", "limit", type=click.IntRange(1, 1000), default=50, help="How many.", show_default=True)
@quiet_option
@remote
def ps(session: Session, everything: bool, state: tuple[str, ...], project: str | None, limit: int) -> None:
    """List jobs, newest first."""
    query = JobFilter(limit=limit, all=int(everything))
    if state:
        query["state"] = state
    if project:
        query["project"] = project
    jobs, out = session.client(start=False).jobs(**query), session.out
    if out.json:
        out.value(jobs)
    elif out.quiet:
        for job in jobs:
            out.data(job["id"])
    elif not jobs:
        out.note("no such job; the others: tm ps" if state or project else "no jobs; submit one: tm run -- python train.py")
    else:
        now_s = time.time()
        out.table(_HEADERS, [row(job, now_s) for job in jobs], state=1, spare=_SPARE)
        if len(jobs) == limit and not everything:
            out.note(f"the newest {limit}; all of them: tm ps --all")
    if not (out.json or out.quiet):
        server_troubles.tell(session, session.client(start=False))


def row(job: dict[str, Any], now_s: float) -> list[str]:
    """A job's cells."""
    name, value = chosen(values_of(job), None)
    began_s = job["started_s"] or job["created_s"]
    age = human.ago(job["ended_s"], now_s) if job["ended_s"] else human.short(max(0.0, now_s - began_s))
    place = job.get("stalled") or ", ".join(job["nodes"])  # a server of an older version does not say
    where = place if job["state"] in ("running", "starting") else "" if job["state"] == "succeeded" else str(job["reason"])
    return [
        job["id"],
        job["state"],
        str(job["attempt"] or "-"),
        "-" if job["step"] is None else str(job["step"]),
        "-" if name is None else f"{name} {last_text(job, name, value).partition(',')[0]}",
        age,
        where or place,
    ]
