"""`tm queue`: lists waiting jobs in order, with reasons and start estimates."""

from collections.abc import Iterator
from typing import Any

import click

from trainmaster.cli.inspect.why import drawn
from trainmaster.cli.render import human
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import Row
from trainmaster.client.filters import QueueFilter

_HEADERS = ("#", "ID", "PROJECT", "MEMBER", "CLASS", "ASKS FOR", "WAITED", "STARTS IN", "90 %", "WHY")
_SPARE = tuple(_HEADERS.index(name) for name in ("CLASS", "MEMBER", "PROJECT", "ASKS FOR"))  # dropped on a narrow terminal
_PAGE = 1000
_HELD_MAX = 5


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="The whole queue, not only its beginning.")
@click.option("--project", help="Only jobs of this project; positions are those in the whole queue.")
@click.option("-n", "limit", type=click.IntRange(1, 1000), default=50, help="How many.", show_default=True)
@quiet_option()
@remote
def queue(session: Session, everything: bool, project: str | None, limit: int) -> None:
    """Show the queue: which job waits for what, since when, and when it will start, with the 90 % bound.

    Held jobs are not in the queue; they are listed below it, with the member who holds them. With --json only the queue.
    """
    query = QueueFilter(limit=_PAGE if everything else limit)
    if project:
        query["project"] = project
    client, out = session.client(), session.out
    found = client.queue(**query)
    held = found["held"]
    jobs: list[Row] = list(found["jobs"])
    while everything and len(jobs) < found["total"] and found["jobs"]:
        query["after"] = jobs[-1]["position"]
        found = client.queue(**query)
        jobs += found["jobs"]
    if out.json:
        out.value(jobs)
    elif out.quiet:
        for job in jobs:
            out.data(job["id"])
    elif not jobs and not held:
        out.note("nothing waits" if project is None else f"nothing of project {project} waits; the whole queue: tm queue")
    elif not jobs:
        out.note("nothing is in the queue")
    else:
        out.table(_HEADERS, [row(job, found["now_s"]) for job in jobs], spare=_SPARE)
        if len(jobs) < found["total"]:
            out.note(f"the first {len(jobs)} of {found['total']:,}; all of them: tm queue --all")
        etas = [job["eta_s"] for job in jobs if job["eta_s"] is not None]
        if etas and etas[0]["few"]:
            out.note(f"start estimates: {drawn(etas[0])}")
        out.note(f"why one of them waits: tm why {jobs[0]['id']}")
    if not out.quiet:
        for line in _held(held):
            out.note(line)


def _held(jobs: list[Row]) -> Iterator[str]:
    """Held jobs, which are not in the queue until they are released."""
    for job in jobs[:_HELD_MAX]:
        whose = f" of {job['member']}" if job.get("member") else ""  # a server of an older version does not say
        yield f"held, and not in the queue: {job['id']}{whose} ({job['reason']}); release it: tm release {job['id']}"
    if len(jobs) > _HELD_MAX:
        yield "and more held jobs: tm ps --state held"


def row(job: dict[str, Any], now_s: float) -> list[str]:
    """A job's cells."""
    eta_s, asks = job["eta_s"], f"waiting for {job['asks']}: "  # the request has a column of its own
    return [
        str(job["position"]),
        job["id"],
        job["project"],
        job["member"] or "-",
        job["class"],
        job["asks"],
        human.short(max(0.0, now_s - job["queued_s"])),
        "-" if eta_s is None else human.about(eta_s["p50"]),
        "-" if eta_s is None else human.between(eta_s["low90"], eta_s["high90"]),
        str(job["reason"]).removeprefix(asks),
    ]
