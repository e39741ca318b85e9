"""`tm logs`: what a job's ranks printed."""

from collections.abc import Iterator
from typing import Any

import click

from trainmaster.cli.session import Session, remote
from trainmaster.cli.stream import LogPrinter, rank_count
from trainmaster.client.api import Client, LogFilter, Row, follow

_HOLD_S = 5.0


@click.command()
@click.argument("job")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", type=click.IntRange(0), help="One rank alone; default: all, as [1] behind rank 0.")
@click.option("--attempt", type=click.IntRange(1), help="One attempt alone; default: all.")
@click.option("--tail", type=click.IntRange(0), help="The last lines of the newest attempt alone.")
@remote
def logs(session: Session, job: str, following: bool, **which: Any) -> None:
    """What a job printed: all attempts, rank 0 first; with -f as it is printed."""
    client, out = session.client(), session.out
    found = client.persistently(lambda: client.job(job)) if following else client.job(job)
    ranks = 1 if which["rank"] is not None else rank_count(found)
    printer = LogPrinter(out, ranks)
    query = LogFilter(rank=which["rank"], attempt=which["attempt"], tail=which["tail"])
    if following:
        query["wait_s"] = _HOLD_S
        for page in follow(client, found["id"], **query):
            printer.page(page["chunks"])
    elif which["tail"] is not None:
        for page in stored(client, found["id"], query):
            printer.page(page["chunks"])
    else:
        for attempt in [which["attempt"]] if which["attempt"] else [one["number"] for one in found["attempts"]]:
            for rank in [which["rank"]] if which["rank"] is not None else range(ranks):
                for page in stored(client, found["id"], LogFilter(rank=rank, attempt=attempt)):
                    printer.page(page["chunks"])
    printer.finish()
    if not found["attempts"] and not following:
        out.note(f"{found['id']} has not started: tm why {found['id']}")


def stored(client: Client, ref: str, query: LogFilter) -> Iterator[Row]:
    """Pages of what is there now."""
    while True:
        page = client.logs(ref, **query)
        if not page["chunks"]:
            return
        yield page
        query = LogFilter(rank=query.get("rank"), attempt=query.get("attempt"), after=page["cursor"])
