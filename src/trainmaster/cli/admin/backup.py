"""`tm backup` and `tm restore`: copy this machine's server, and make a server from a copy."""

import shlex
import time
from pathlib import Path

import click

from trainmaster import backup as copies
from trainmaster.cli.render import human
from trainmaster.cli.render.output import Output
from trainmaster.cli.session import Session, offline
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.live_processes import PROCESSES, alive
from trainmaster.locks import hold

_NAMED_MAX = 5
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_FOLDER)
@click.option("--blobs", is_flag=True, help="Also copy checkpoints, artifacts and code, if the store is in the home.")
@offline
def backup(session: Session, folder: Path, blobs: bool) -> None:
    """Copy this machine's server into an empty FOLDER while it runs: jobs, events, metrics, configuration and tokens."""
    home, out = Home.default(), session.out
    target = folder.absolute()
    if target.is_relative_to(home.root):
        raise UsageError(f"{target} is inside {home.root}", "name a folder on another disk")
    made = copies.backup(home, target, blobs)
    if out.json:
        out.value({"folder": str(target), **made._asdict()})
        return
    size = sum(made.files.values()) + made.blobs_bytes
    out.data(f"copied {home.root} to {target}: {human.size(size)}")
    for name in made.damaged:
        out.note(f"left out: {name} is damaged; see tm doctor")
    _note_lacking(out, made)
    if made.store is not None:
        out.note(f"left out: checkpoints, artifacts and code, which are in {made.store}: back it up with its own tools")
    elif made.left_bytes is None:
        out.note(f"left out: checkpoints, artifacts and code (how much is unknown: {home.blobs} cannot be read)")
    elif made.left_bytes:
        out.note(f"left out: {human.size(made.left_bytes)} of checkpoints, artifacts and code; with them: tm backup --blobs")
    anew = f"tm restore {shlex.quote(str(target))}"
    out.note(f"keep it like a password: it holds the server's tokens\nto restore it into an empty home: {anew}")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@offline
def restore(session: Session, folder: Path) -> None:
    """Restore this machine's server from a backup in FOLDER. Its home must be empty. Nothing is started."""
    home, out = Home.default(), session.out
    if any(alive(home, which) for which in PROCESSES):
        raise UsageError(f"a server runs on {home.root}", "stop it first: tm down")
    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with hold(home, "up"):
        made = copies.restore(home, folder.absolute())
    if out.json:
        out.value(made._asdict())
        return
    taken = time.strftime("%Y-%m-%d %H:%M", time.localtime(made.taken_s))
    out.data(f"restored {home.root} as of {taken}")
    if made.live:
        count = human.plural(len(made.live), "attempt")
        out.note(f"{count} ran at that time and are lost: their jobs restart from their last checkpoints")
    _note_lacking(out, made)
    if made.damaged:
        count = human.plural(len(made.damaged), "file")
        out.note(f"missing or unreadable in the backup, or not as written: {count} of the store: {_some(made.damaged)}")
        out.note("with their jobs, after tm up: tm storage verify")
    if not made.verified:
        out.note("an earlier version made the backup, without digests of the store's files; after tm up: tm storage verify")
    if made.store is not None:
        out.note(f"checkpoints, artifacts and code are not included: they were in {made.store}")
        out.note("if they were lost, too, copy them back there before tm up")
    elif not made.blobs:
        out.note("checkpoints, artifacts and code are not included")
        out.note(f"unless the store is elsewhere, copy them back before tm up: {home.blobs}")
    out.note(f"never start the server in {made.origin} again: both would run the same jobs\nnext: tm up")


def _note_lacking(out: Output, made: copies.Copied | copies.Restored) -> None:
    if made.unread:
        count = human.plural(len(made.unread), "path")
        out.note(f"left out of the backup: {count} of the store that could not be read: {_some(made.unread)}")
    if made.missing:
        count = human.plural(len(made.missing), "checkpoint part")
        out.note(f"the log names {count} that the copy does not have whole: {_some(made.missing)}")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
