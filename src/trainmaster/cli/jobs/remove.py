"""`tm rm` and `tm prune`: remove stored bytes of ended jobs, after showing what would be removed and its size."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import Row
from trainmaster.client.connection import BY_CODE
from trainmaster.errors import OperationError, UsageError


class _Kind(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no type arguments
    """One kind of what is stored. Kinds in one word get a hint to repeat the option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The kind. Raises: UsageError for several."""
        if "," in value:
            again = " ".join(f"--only {one.strip()}" for one in value.split(",") if one.strip())
            raise UsageError(f"--only has one kind, not {value!r}", f"repeat it: {again}")
        return super().convert(value, param, ctx)


_KINDS = _Kind(("work", "logs", "checkpoints", "artifacts", "metrics"))
_SHOWN = 20  # jobs listed before the question
_ONLY = click.option("--only", "kinds", type=_KINDS, multiple=True, metavar="KIND", help="Only these kinds; may be repeated.")
_DRY = click.option("--dry-run", is_flag=True, help="Show what would be removed, but remove nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command(short_help="Remove stored bytes of ended jobs; their record stays.")
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@_ONLY
@_DRY
@_YES
@remote
def rm(session: Session, jobs: tuple[str, ...], kinds: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Remove stored bytes of ended jobs: work directories, logs, checkpoints, artifacts and the points of curves.

    KIND is work, logs, checkpoints, artifacts or metrics. The record stays: tm show and tm ps still show the job. A
    checkpoint that a fork needs is removed after that fork has ended.
    """
    client = session.client(start=not dry_run)
    found = client.disk.remove(jobs, kinds, dry_run=True)
    going = [row["id"] for row in found if row.get("kinds")]
    if _agreed(session, found, dry_run, yes):
        client.disk.remove(going, kinds)
    _tell(session, found, dry_run)
    _refused([row for row in found if "error" in row])


@click.command(short_help="Remove stored bytes of jobs that ended long ago.")
@click.option("--older-than", default="30d", metavar="TIME", help="Jobs that ended so long ago: 90m, 24h, 30d (default).")
@click.option(
    "--keep", type=click.IntRange(0), default=0, metavar="N", help="Keep the newest N jobs, whatever their age."
)
@click.option("--project", help="Only jobs of this project.")
@_ONLY
@_DRY
@_YES
@remote
def prune(session: Session, older_than: str, kinds: tuple[str, ...], dry_run: bool, yes: bool, **which: object) -> None:
    """Remove the work directories and logs of jobs that ended long ago; with --only other kinds.

    KIND is work, logs, checkpoints, artifacts or metrics. It affects only jobs that you may change; their record stays.
    """
    age_s = times.seconds(older_than, "--older-than", "write 90m, 24h or 30d")
    client = session.client(start=not dry_run)
    found = client.disk.prune(age_s, kinds, dry_run=True, **which)
    if _agreed(session, found["jobs"], dry_run, yes):
        client.disk.remove([row["id"] for row in found["jobs"]], kinds or ("work", "logs"))
    _tell(session, found["jobs"], dry_run)
    if found["more"]:
        session.out.note("there are more: run it again")


def _agreed(session: Session, rows: Sequence[Row], dry_run: bool, yes: bool) -> bool:
    """Show what would be removed and ask for confirmation. Raises: UsageError, click.Abort."""
    going = [row for row in rows if row.get("kinds")]
    if dry_run or not going:
        return False
    if yes:
        return True
    what = f"{human.plural(len(going), 'job')}, {_size(going)}"
    if session.out.json or not sys.stdin.isatty():
        raise UsageError(f"this would remove the bytes of {what}", "confirm: --yes   or look first: --dry-run")
    for row in going[:_SHOWN]:
        session.out.note(_line(row))
    if len(going) > _SHOWN:
        session.out.note(f"and {len(going) - _SHOWN} more")
    click.confirm(f"remove the bytes of {what}?", abort=True, err=True)
    return True


def _tell(session: Session, rows: Sequence[Row], dry_run: bool) -> None:
    out, done = session.out, [row for row in rows if "error" not in row]
    if out.json:
        out.value(done)
        return
    going = [row for row in done if row["kinds"]]
    for row in going:
        out.data(_line(row))
    underway = [row for row in done if row.get("going")]  # a server of an older version does not say so
    if going:
        verb = "would remove" if dry_run else "removing"  # the server does it afterwards, and the disk may refuse
        out.note(f"{verb} {_size(going)} of {human.plural(len(going), 'job')}")
    elif len(done) == len(rows) and not underway:
        out.note("there is nothing to remove")
    for row in underway:
        out.note(f"the removal of the {', '.join(row['going'])} of {row['id']} was ordered before and has not ended")
    for row in going:
        if row["kept_for"]:
            out.note(f"a checkpoint of {row['id']} that {', '.join(row['kept_for'])} needs is removed after that job has ended")


def _refused(rows: Sequence[Row]) -> None:
    """Raises: the first error, with the number of errors."""
    if rows:
        first = rows[0]["error"]
        message = first["message"] if len(rows) == 1 else f"{len(rows)} were rejected, first: {first['message']}"
        raise BY_CODE.get(first["code"], OperationError)(message, first["hint"])


def _line(row: Row) -> str:
    """`digits-3  work 1.2 GB, logs 3 MB, metrics`."""
    return f"{row['id']}  {', '.join(_kind(row, kind) for kind in row['kinds'])}"


def _kind(row: Row, kind: str) -> str:
    if kind in row.get("unread", ()):  # an older server does not say
        return f"{kind} {human.size(row['bytes'].get(kind, 0))} or more"
    return f"{kind} {human.size(row['bytes'][kind])}" if kind in row["bytes"] else kind


def _size(rows: Sequence[Row]) -> str:
    """Of all of them. What could not be read has an unknown size."""
    size = human.size(sum(sum(row["bytes"].values()) for row in rows))
    return f"{size} or more" if any(row.get("unread") for row in rows) else size
