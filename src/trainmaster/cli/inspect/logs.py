"""`tm logs`: prints the output of a job's ranks."""

from collections.abc import Iterator
from typing import Any

import click

from trainmaster.cli.render.log_stream import LogPrinter, program_count, rank_count
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import ENDED, Client, Row, follow
from trainmaster.client.filters import LogFilter
from trainmaster.errors import UsageError

_HOLD_S = 5.0


@click.command()
@click.argument("job", type=JOB)
@click.option("-f", "--follow", "following", is_flag=True, help="Follow until the job has ended.")
@click.option("--rank", type=click.IntRange(0), help="Only this rank; default: all; ranks above 0 are marked, as [1].")
@click.option("--role", metavar="NAME", help="Only this role, which runs beside the ranks.")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt; default: all.")
@click.option("--tail", type=click.IntRange(0), help="Only the last lines of the newest attempt.")
@click.option("--raw", is_flag=True, help="Print control sequences unchanged, also on a terminal.")
@remote
def logs(session: Session, job: str, following: bool, raw: bool, **which: Any) -> None:
    """Print a job's output: all attempts, rank 0 first; with -f as it is written.

    On a terminal, colors and cleared lines are kept and other control sequences are shown as text. Piped, or with --raw,
    the output is exactly what the job printed.
    """
    client, out = session.client(), session.out
    found = client.persistently(lambda: client.job(job)) if following else client.job(job)
    _check(found, which, following)
    alone = which["rank"] is not None or which["role"] is not None
    if not found["attempts"]:
        out.note(_nothing(found))
    printer = LogPrinter(out, 1 if alone else program_count(found), raw=raw)
    query = LogFilter(rank=which["rank"], role=which["role"], attempt=which["attempt"], tail=which["tail"])
    if following:
        query["wait_s"] = _HOLD_S
        for page in follow(client, found["id"], **query):
            printer.page(page["chunks"])
    elif which["tail"] is not None:
        for page in stored(client, found["id"], query):
            printer.page(page["chunks"])
    else:
        for attempt in [which["attempt"]] if which["attempt"] else [one["number"] for one in found["attempts"]]:
            for voice in [query] if alone else _sources(found):
                for page in stored(client, found["id"], LogFilter(rank=voice["rank"], role=voice["role"], attempt=attempt)):
                    printer.page(page["chunks"])
    printer.finish()


def _sources(job: Row) -> list[LogFilter]:
    """The ranks and roles that print, in the order in which they are shown."""
    ranks = [LogFilter(rank=rank, role=None) for rank in range(rank_count(job))]
    return ranks + [LogFilter(rank=None, role=role) for role in job["spec"].get("roles") or ()]


def _check(job: Row, which: dict[str, Any], following: bool) -> None:
    """Raises: UsageError for a rank, role or attempt that does not exist."""
    rank, role, attempt = which["rank"], which["role"], which["attempt"]
    ranks, numbers = rank_count(job), [one["number"] for one in job["attempts"]]
    roles = list(job["spec"].get("roles") or ())
    if role is not None and rank is not None:
        raise UsageError("--rank and --role contradict each other", "give one of them")
    if role is not None and role not in roles:
        raise UsageError(f"{job['id']} has no role {role!r}", f"it has {', '.join(roles)}" if roles else "it has none")
    if rank is not None and rank >= ranks:
        has = "rank 0 only" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise UsageError(f"{job['id']} has no rank {rank}", f"it has {has}")
    if attempt is not None and attempt not in numbers and not following:
        had = f"it has had {', '.join(map(str, numbers))}" if numbers else _nothing(job)
        raise UsageError(f"{job['id']} has had no attempt {attempt}", had)


def _nothing(job: Row) -> str:
    """Why there is no log."""
    if job["state"] in ENDED:
        return f"{job['id']} was {job['state']} before it started"
    return f"{job['id']} has not started: tm why {job['id']}"


def stored(client: Client, ref: str, query: LogFilter) -> Iterator[Row]:
    """Read the stored log in pages."""
    while True:
        page = client.logs(ref, **query)
        if not page["chunks"]:
            return
        yield page
        query["after"], query["tail"] = page["cursor"], None
