"""`tm storage`: shows the usage of the store and the server's home, and collects garbage."""

import sys
import time

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.render.output import Output
from trainmaster.cli.session import Session, remote
from trainmaster.client.api import Row
from trainmaster.errors import OperationError, UsageError

_HEADERS = ("PROJECT", "KIND", "BLOBS", "SIZE", "ORPHANED", "OLDER CHECKPOINTS")
_SIZES = ("bytes", "orphaned_bytes", "spare_bytes")
_POLL_S, _TELL_S = 0.2, 10.0
_UNKNOWN = "(unknown)"  # the server's name for the project of what may be of no job
_NOT_KNOWN = "of jobs that are not on record, or perhaps stored after the backup that was restored"


@click.group(invoke_without_command=True)
@click.option("--project", help="Only this project.")
@remote
@click.pass_context
def storage(context: click.Context, session: Session, project: str | None) -> None:
    """Show the size of checkpoints, artifacts, code and provenance by project, and of everything in the server's home."""
    if context.invoked_subcommand is not None:
        return
    found, out = session.client().disk.storage(project), session.out
    if out.json:
        out.value(found)
        return
    if not project:
        _home(out, found)
    rows = [[one["project"], one["kind"], str(one["blobs"]), *(human.size(one[f]) for f in _SIZES)] for one in found["use"]]
    if not rows:
        out.note(f"nothing is stored{f' for project {project}' if project else ''} in {found['store']}")
        return
    out.table(_HEADERS, rows)
    total = {f: sum(one[f] for one in found["use"]) for f in _SIZES}
    out.note(f"{human.size(total['bytes'])} in {found['store']}")
    if total["orphaned_bytes"]:
        out.note(f"{human.size(total['orphaned_bytes'])} are unreferenced; remove those older than a day: tm storage gc")
    if total["spare_bytes"]:
        size = human.size(total["spare_bytes"])
        out.note(f"{size} are older checkpoints of ended jobs; remove them: tm storage gc --older-checkpoints")
    unknown = sum(one["bytes"] for one in found["use"] if one["project"] == _UNKNOWN)
    if unknown:
        out.note(f"{human.size(unknown)} are {_NOT_KNOWN}; to remove them: tm storage gc --unknown-jobs")


def _home(out: Output, found: Row) -> None:
    """Print the usage of the home by kind, and the jobs with the largest usage. An older server does not report it."""
    if "disk" not in found:
        return
    kinds = sorted(found["disk"], key=lambda one: -one["bytes"])
    out.table(("ON DISK", "FILES", "SIZE"), [[one["kind"], str(one["files"]), human.size(one["bytes"])] for one in kinds])
    out.note(f"{human.size(sum(one['bytes'] for one in kinds))} in {found['home']}; {human.size(found['free_bytes'])} free")
    unread = sum(one.get("unread", 0) for one in kinds)
    if unread:
        out.note(f"{human.plural(unread, 'path')} could not be read: there may be more")
    rows = [[one["job"], human.size(sum(one["bytes"].values())), _parts(one["bytes"])] for one in found["largest"]]
    if rows:
        out.table(("LARGEST", "SIZE", "OF IT"), rows)
        out.note("remove data of an ended job: tm rm JOB   of all that ended long ago: tm prune")


def _parts(sizes: Row) -> str:
    return ", ".join(f"{kind} {human.size(size)}" for kind, size in sorted(sizes.items(), key=lambda one: -one[1]))


@storage.command(short_help="Remove unreferenced bytes.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, but remove nothing.")
@click.option("--grace", default="24h", metavar="TIME", help="Keep what is younger: 90m, 24h (default), 7d.")
@click.option("--older-checkpoints", is_flag=True, help="Also remove all but the last good checkpoint of ended jobs.")
@click.option("--unknown-jobs", is_flag=True, help=f"Also remove blobs {_NOT_KNOWN}.")
@click.option("--yes", is_flag=True, help="Do not ask before more than unreferenced bytes is removed.")
@remote
def gc(session: Session, dry_run: bool, grace: str, yes: bool, **also: bool) -> None:
    """Remove stored bytes that nothing refers to. Keeps what a job, a pending submit or a fork needs.

    A job's last good checkpoint stays, and so does one that another job started from. Where the last good one is not whole in
    the store, all stay.
    """
    grace_s, out = times.seconds(grace, "--grace", "write 90m, 24h or 7d"), session.out
    disk, older_checkpoints = session.client().disk, also["older_checkpoints"]
    if any(also.values()) and not (dry_run or yes):
        _agree(session, disk.collect(grace_s, True, **also), also["unknown_jobs"])
    done = disk.collect(grace_s, dry_run, **also)
    if out.json:
        out.value(done)
        return
    what = f"{human.plural(done['blobs'], 'blob')}, {human.size(done['bytes'])}"
    if done["uploads"]:
        what += f", and {human.plural(done['uploads'], 'unfinished upload')}"
    out.note(f"{'would remove' if dry_run else 'removed'} {what}")
    if older_checkpoints:
        older = f"{human.plural(done['given_up'], 'older checkpoint')}, {human.size(done['given_up_bytes'])}"
        out.note(f"{'would remove' if dry_run else 'removed'} {older}")
    if done.get("held_jobs"):
        stay = f"all checkpoints of {human.plural(done['held_jobs'], 'job')} stay"
        out.note(f"{stay}: the last good one is not whole in the store; tm storage verify names what is missing")
    if done["young_bytes"]:
        out.note(f"{human.size(done['young_bytes'])} more are unreferenced but younger than {grace}: kept for now")
    if done.get("unread_trees"):  # an older server does not say
        lists = human.plural(done["unread_trees"], "list")
        why = f"{lists} of the files of a code copy cannot be read"
        out.note(f"all code is kept: {why}; tm storage verify names what is damaged")


def _agree(session: Session, found: Row, unknown: bool) -> None:
    """Ask before checkpoints, or blobs of unknown jobs, are removed. `found`: what would be.

    Raises: UsageError where nobody can be asked, click.Abort.
    """
    parts = []
    if found["given_up"]:
        older = human.plural(found["given_up"], "older checkpoint")
        parts.append(f"{older} of ended jobs, {human.size(found['given_up_bytes'])}")
    if unknown and found["blobs"]:
        parts.append(f"{human.plural(found['blobs'], 'blob')}, {human.size(found['bytes'])}, also {_NOT_KNOWN}")
    if not parts:
        return
    what = "; and ".join(parts)
    if session.out.json or not sys.stdin.isatty():
        raise UsageError(f"this would remove {what}", "confirm: --yes   or look first: --dry-run")
    click.confirm(f"remove {what}?", abort=True, err=True)


@storage.command(short_help="Read everything and compare it with its digest.")
@click.option("--repair", is_flag=True, help="Replace what is damaged where there is a good copy: in the cache, in the home.")
@remote
def verify(session: Session, repair: bool) -> None:
    """Read everything in the store, and compare each file with its digest.

    The server reads in the background. Ctrl-C leaves it at that; the same command shows the progress again. What is damaged is
    never run or restored. Code is stored again by the next submit of the same file.
    """
    disk, out = session.client().disk, session.out
    found = disk.verify(repair)
    told_s = time.monotonic()
    while not found["ended"]:
        time.sleep(_POLL_S)
        found = disk.verification()
        if time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            out.note(f"read {_amount(found)} so far")
    if out.json:
        out.value(found)
    else:
        _tell_damage(out, found)
    if found["error"]:
        raise OperationError(f"the verification ended early: {found['error']}", "run it again")
    if found["unreadable"]:
        unread = human.plural(found["unreadable"], "file")
        raise OperationError(f"{unread} could not be read", "look at the disk or the bucket of the server")
    if any(not one["repaired"] for one in found["damaged"]):
        raise OperationError(f"{_are(found['damaged_total'])} damaged or missing", "tm doctor says what follows from it")


def _tell_damage(out: Output, found: Row) -> None:
    rows = [[one["what"], ", ".join(one["jobs"]) or "-", "yes" if one["repaired"] else "no"] for one in found["damaged"]]
    if rows:
        out.table(("DAMAGED", "JOBS", "REPAIRED"), rows)
    if found["damaged_total"] > len(rows):
        out.note(f"and {found['damaged_total'] - len(rows)} more")
    if found["unreadable"]:
        out.note(f"{human.plural(found['unreadable'], 'file')} could not be read now, and may be whole: run it again")
    if not found["error"]:
        whole = "the others are" if rows or found["unreadable"] else "all are"
        out.note(f"read {_amount(found)}: {whole} as their digests say")


def _are(count: int) -> str:
    return f"{count} files of the store are" if count != 1 else "1 file of the store is"


def _amount(found: Row) -> str:
    return f"{human.plural(found['blobs'], 'file')}, {human.size(found['bytes'])}"
