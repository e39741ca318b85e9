"""`tm cancel`: cancels jobs by reference, or all, in one request, and lists those that were rejected."""

import sys
from typing import Any

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.client.api import Client, Row
from trainmaster.client.connection import BY_CODE
from trainmaster.errors import OperationError, UsageError

_HINT = "such as --grace 5s, or --now to kill at once"
_SAID = {"cancelled": "is already cancelled"}
_STATES = ("held", "queued", "starting", "running", "stopping")


@click.command()
@click.argument("jobs", type=JOB, nargs=-1, metavar="JOB...")
@click.option("--grace", metavar="TIME", help="How long the ranks may take to save and exit: 5s; default 30s.")
@click.option("--now", is_flag=True, help="Kill at once, without a chance to save.")
@click.option("--all", "everything", is_flag=True, help="Every unfinished job.")
@click.option("--project", help="With --all: only in this project.")
@click.option("--experiment", help="With --all: only in this experiment.")
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="With --all: only in this state.")
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@click.option("--reason", default="", help="A reason; it is shown with the job.")
@quiet_option()
@remote
def cancel(session: Session, jobs: tuple[str, ...], grace: str | None, now: bool, reason: str, **which: Any) -> None:
    """Cancel waiting or running jobs: SIGTERM, so that they can save, then SIGKILL after the grace period.

    A second cancel with a shorter grace period shortens it.
    """
    narrowed = bool(which["project"] or which["experiment"] or which["states"])
    if bool(jobs) == which["everything"] or (narrowed and not which["everything"]):
        raise UsageError("name the jobs, or give --all (and filters)", "tm cancel JOB...   or   tm cancel --all")
    if now and grace is not None:
        raise UsageError("--now and --grace contradict each other", "give one of them")
    grace_s = 0.0 if now else None if grace is None else times.seconds(grace, "--grace", _HINT, "s")
    client = session.client(start=True)
    if len(jobs) == 1:
        _tell(session, [client.cancel(jobs[0], reason, grace_s)])
    elif jobs:
        _tell(session, client.cancel_many({"jobs": list(jobs)}, reason, grace_s))
    else:
        chosen = {name: which[name] for name in ("project", "experiment") if which[name]}
        chosen |= {"states": list(which["states"])} if which["states"] else {}
        if not which["yes"]:
            _confirm(session, client, chosen)
        _tell(session, client.cancel_many({"all": True, **chosen}, reason, grace_s))


def _confirm(session: Session, client: Client, chosen: dict[str, Any]) -> None:
    """Ask for confirmation. Raises: UsageError without a terminal, click.Abort."""
    query: Any = {"state": chosen.get("states") or _STATES, **{k: v for k, v in chosen.items() if k != "states"}}
    count = len(client.jobs(all=1, **query))
    if count == 0:
        return
    if session.out.json or not sys.stdin.isatty():
        raise UsageError(f"this would cancel {human.plural(count, 'job')}", "confirm: --yes")
    click.confirm(f"cancel {human.plural(count, 'job')}?", abort=True, err=True)


def _tell(session: Session, answers: list[Row]) -> None:
    """One line each. Raises: the first refusal, with how many there were."""
    out = session.out
    done, refused = [row for row in answers if "error" not in row], [row for row in answers if "error" in row]
    if out.json:
        out.value(done)
    for row in done:
        if out.quiet:
            out.data(row["id"])
        elif not out.json:
            out.data(f"{row['id']} {_SAID.get(row['state'], 'is being cancelled')}")
    if not answers and not out.quiet:
        out.note("there is nothing to cancel")
    for row in refused:
        out.note(f"error: {row['error']['message']}")
    if refused:
        first = refused[0]["error"]
        message = f"{len(refused)} of {len(answers)} were rejected, first: {first['message']}"
        raise BY_CODE.get(first["code"], OperationError)(message, first["hint"])
