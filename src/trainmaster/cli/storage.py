"""`tm storage`: what the store holds, and removing what nothing needs."""

import click

from trainmaster.cli import words
from trainmaster.cli.session import Session, remote
from trainmaster.errors import UsageError

_HEADERS = ("PROJECT", "KIND", "BLOBS", "SIZE", "ORPHANED", "OLDER CHECKPOINTS")
_SIZES = ("bytes", "orphaned_bytes", "spare_bytes")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group(invoke_without_command=True)
@click.option("--project", help="Only of this project.")
@remote
@click.pass_context
def storage(context: click.Context, session: Session, project: str | None) -> None:
    """What checkpoints, artifacts, code and provenance take, by project; and garbage collection."""
    if context.invoked_subcommand is not None:
        return
    found, out = session.client().storage(project), session.out
    if out.json:
        out.value(found)
        return
    rows = [[one["project"], one["kind"], str(one["blobs"]), *(words.size(one[f]) for f in _SIZES)] for one in found["use"]]
    if not rows:
        out.note(f"nothing is stored{f' for project {project}' if project else ''} in {found['store']}")
        return
    out.table(_HEADERS, rows)
    total = {f: sum(one[f] for one in found["use"]) for f in _SIZES}
    out.note(f"{words.size(total['bytes'])} in {found['store']}")
    if total["orphaned_bytes"]:
        out.note(f"{words.size(total['orphaned_bytes'])} nothing refers to; remove what is older than a day: tm storage gc")
    if total["spare_bytes"]:
        size = words.size(total["spare_bytes"])
        out.note(f"{size} are older checkpoints of jobs that are over (checkpoint.keep says how many are kept)")


@storage.command(short_help="Remove what nothing refers to.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--grace", default="24h", metavar="TIME", help="Leave alone what is younger: 90m, 24h (default), 7d.")
@remote
def gc(session: Session, dry_run: bool, grace: str) -> None:
    """Remove what nothing refers to: never what a job, a submit on its way or a fork needs."""
    done, out = session.client().collect(_seconds(grace), dry_run), session.out
    if out.json:
        out.value(done)
        return
    what = f"{words.plural(done['blobs'], 'blob')}, {words.size(done['bytes'])}"
    if done["uploads"]:
        what += f", and {words.plural(done['uploads'], 'unfinished upload')}"
    out.note(f"{'would remove' if dry_run else 'removed'} {what}")
    if done["young_bytes"]:
        out.note(f"{words.size(done['young_bytes'])} more nothing refers to, younger than {grace}: left alone for now")


def _seconds(text: str) -> float:
    """Raises: UsageError."""
    try:
        return float(text[:-1]) * _UNITS[text[-1:]]
    except (ValueError, KeyError):
        raise UsageError(f"--grace {text}: no time", "write 90m, 24h or 7d") from None
