"""`tm logs`: prints the output of jobs' ranks."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from trainmaster.cli.render import times
from trainmaster.cli.render.log_stream import Keep, Lines, LogPrinter, program_count, rank_count
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import ENDED, Client, Row
from trainmaster.client.filters import LogFilter
from trainmaster.client.log_pages import follow
from trainmaster.errors import OperationError, TrainmasterError, UsageError

_HOLD_S = 5.0
_FOLLOWED_MAX = 32  # jobs at once, each with a connection of its own
_RANKS_MAX = 1000
_LOOK_S = 0.2


class _Asked(NamedTuple):
    """What the command line asks for."""

    ranks: tuple[int, ...]
    role: str | None
    attempt: int | None
    tail: int | None
    keep: Keep | None
    raw: bool
    following: bool
    since_s: float | None
    timestamps: bool

    @property
    def alone(self) -> bool:
        """Whether one program's output is asked for."""
        return len(self.ranks) == 1 or self.role is not None

    def filter(self) -> LogFilter:
        """As a query."""
        whose = LogFilter(rank=list(self.ranks) or None, role=self.role)
        return self.part_of(whose, self.attempt)

    def part_of(self, whose: LogFilter, attempt: int | None) -> LogFilter:
        """As a query for the output of these ranks or this role in an attempt."""
        timed = 1 if self.timestamps or self.since_s is not None else None
        return LogFilter(**whose, attempt=attempt, tail=self.tail, since_s=self.since_s, times=timed)


@click.command()
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@click.option("-f", "--follow", "following", is_flag=True, help="Follow until the jobs have ended.")
@click.option("-n", "--tail", type=click.IntRange(0), help="Only the last lines of each rank, of the newest attempt.")
@click.option("--since", metavar="TIME", help="Only lines written since: 10m, 2h, today, 2026-11-30T14:00.")
@click.option("-t", "--timestamps", is_flag=True, help="Print before each line when it was written.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines in which this is found (RE2); (?i) ignores case.")
@click.option("--rank", "ranks", multiple=True, metavar="N[,…]", help="Only these ranks: 0,2-5; above 0 they are marked: [1].")
@click.option("--role", metavar="NAME", help="Only this role, which runs beside the ranks.")
@click.option("--attempt", type=click.IntRange(1), help="Only this attempt; default: all.")
@click.option("--raw", is_flag=True, help="Print control sequences unchanged, also on a terminal.")
@remote
def logs(session: Session, jobs: tuple[str, ...], pattern: str | None, since: str | None, **which: Any) -> None:
    """Print the output of jobs: all attempts, rank 0 first; with -f as it is written.

    The lines of several jobs begin with their ids. On a terminal, colors and cleared lines are kept and other control
    sequences are shown as text. Piped, or with --raw, the output is exactly what the job printed; only bytes that are no
    UTF-8 are replaced.

    Times of lines are exact to a second. After 18 hours of steady output older ones are coarser: half a minute after a day.
    """
    following = which["following"]
    since_s = None if since is None else times.moment(since, "--since", time.time())
    which["ranks"] = _ranks(which["ranks"])
    asked = _Asked(keep=None if pattern is None else _searched(pattern), since_s=since_s, **which)
    client = session.client()
    several = len(jobs) > 1
    found = [_job(client, ref, following) for ref in jobs]
    for job in found:
        _check(job, asked)
    if following and several:
        _follow_all(session, found, asked)
        return
    for job in found:
        if not job["attempts"]:
            session.out.note(_nothing(job))
        _print(session, client, job, asked, several)


def _job(client: Client, ref: str, following: bool) -> Row:
    return client.persistently(lambda: client.job(ref)) if following else client.job(ref)


def _print(session: Session, client: Client, job: Row, asked: _Asked, named: bool) -> None:
    """Print the log of one job. `named`: with its id before each line."""
    printer, query = _printer(session, job, asked, named), asked.filter()
    if asked.following:
        query["wait_s"] = _HOLD_S
        pages = follow(client, job["id"], **query)
    elif asked.tail is not None:
        pages = stored(client, job["id"], query)
    else:
        pages = _whole(client, job, asked)
    found = set[int]()
    for page in pages:
        found.update(chunk["attempt"] for chunk in page["chunks"])
        _print_page(printer, page, asked)
    printer.finish()
    if asked.since_s is not None and not found and job["attempts"]:
        session.out.note(f"{job['id']} has printed nothing since then; its last lines: tm logs {job['id']} -n 20")
    elif asked.since_s is None and not asked.following and (asked.tail is None or not found):
        # it printed nothing, or its logs are gone: a backup has none
        none = [str(one) for one in _attempts(job, asked) if one not in found]
        such = "no such output" if asked.ranks or asked.role is not None else "no output"
        if none:
            session.out.note(f"the server has {such} of {job['id']}, attempt{'s' if len(none) > 1 else ''} {', '.join(none)}")


def _print_page(printer: LogPrinter, page: Row, asked: _Asked) -> None:
    """Print a page. Raises: OperationError if the server ignored that times are asked for: it is of an older version."""
    if (asked.timestamps or asked.since_s is not None) and any("times" not in chunk for chunk in page["chunks"]):
        raise OperationError("the server is of an older version, which knows no times of lines", "update it")
    printer.page(page["chunks"])


def _printer(session: Session, job: Row, asked: _Asked, named: bool) -> LogPrinter:
    programs = 1 if asked.alone else program_count(job)
    lines = Lines(str(job["id"]) if named else "", asked.keep, asked.timestamps)
    return LogPrinter(session.out, programs, raw=asked.raw, lines=lines)


def _whole(client: Client, job: Row, asked: _Asked) -> Iterator[Row]:
    """The whole log, attempt by attempt, and source by source."""
    for attempt in _attempts(job, asked):
        for source in _sources(job, asked):
            yield from stored(client, job["id"], asked.part_of(source, attempt))


def _attempts(job: Row, asked: _Asked) -> list[int]:
    return [asked.attempt] if asked.attempt else [one["number"] for one in job["attempts"]]


def _sources(job: Row, asked: _Asked) -> list[LogFilter]:
    """The ranks and roles that print, in the order in which they are shown."""
    if asked.role is not None:
        return [LogFilter(rank=None, role=asked.role)]
    ranks = [LogFilter(rank=rank, role=None) for rank in asked.ranks or range(rank_count(job))]
    return ranks if asked.ranks else ranks + [LogFilter(rank=None, role=role) for role in job["spec"].get("roles") or ()]


def _follow_all(session: Session, jobs: Sequence[Row], asked: _Asked) -> None:
    """Follow several jobs, each on a thread with a connection of its own. Raises: the first error, after all have ended."""
    if len(jobs) > _FOLLOWED_MAX:
        raise UsageError(f"-f follows at most {_FOLLOWED_MAX} jobs at once, not {len(jobs)}", "name fewer")
    turn, failed = threading.Lock(), list[TrainmasterError]()

    def run(job: Row) -> None:
        printer, query = _printer(session, job, asked, named=True), asked.filter()
        query["wait_s"] = _HOLD_S
        try:
            with Client(session.server, start=False, say=session.out.note) as client:
                for page in follow(client, job["id"], **query):
                    with turn:
                        _print_page(printer, page, asked)
        except TrainmasterError as error:
            failed.append(error)
        with turn:
            printer.finish()

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[-1].join(_LOOK_S)  # in short pieces, so that Ctrl-C arrives
        threads = [thread for thread in threads if thread.is_alive()]
    if failed:
        raise failed[0]


def _ranks(given: Sequence[str]) -> tuple[int, ...]:
    """`0,2-5` as numbers. Raises: UsageError."""
    ranks: list[int] = []
    for part in (part.strip() for text in given for part in text.split(",")):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and len(first) < 10 and (not dash or (last.isdecimal() and len(last) < 10))):
            raise UsageError(f"--rank: {part!r} is not the number of a rank", "such as: --rank 0   --rank 0,2-5")
        if len(ranks) + int(last or first) - int(first) >= _RANKS_MAX:
            raise UsageError(f"--rank names more than {_RANKS_MAX:,} ranks", "leave it out for all ranks")
        ranks += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(ranks))


def _searched(pattern: str) -> Keep:
    """Whether a line has the pattern, in time linear in the line. Raises: UsageError."""
    from trainmaster.agent.metrics.patterns import PatternError, compiled  # noqa: PLC0415  it loads RE2

    try:
        search = compiled(pattern).search
    except PatternError as error:
        raise UsageError(f"--grep: this pattern cannot be used: {error}", "such as: --grep 'loss|error'") from error
    return lambda line: search(line) is not None


def _check(job: Row, asked: _Asked) -> None:
    """Raises: UsageError for a rank, role or attempt that does not exist."""
    ranks, numbers = rank_count(job), [one["number"] for one in job["attempts"]]
    roles = list(job["spec"].get("roles") or ())
    if asked.role is not None and asked.ranks:
        raise UsageError("--rank and --role contradict each other", "give one of them")
    if asked.role is not None and asked.role not in roles:
        raise UsageError(f"{job['id']} has no role {asked.role!r}", f"it has {', '.join(roles)}" if roles else "it has none")
    if asked.ranks and max(asked.ranks) >= ranks:
        has = "rank 0 only" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise UsageError(f"{job['id']} has no rank {max(asked.ranks)}", f"it has {has}")
    if asked.attempt is not None and asked.attempt not in numbers and not asked.following:
        had = f"it has had {', '.join(map(str, numbers))}" if numbers else _nothing(job)
        raise UsageError(f"{job['id']} has had no attempt {asked.attempt}", had)


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
