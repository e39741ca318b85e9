"""`tm wait`: waits until jobs have ended; the exit code says how they ended."""

import time
from typing import Any

import click

from trainmaster.cli.render import human
from trainmaster.cli.render.output import Output
from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.client.api import ENDED, Client, Row
from trainmaster.errors import JOB_FAILED_EXIT, WaitTimeoutError

_LOOK_S = 0.5

passed_on = click.option(
    "--exit-code", "passed_on", is_flag=True, help="Exit with the program's exit code (128 + N for signal N) instead of 10."
)


@click.command()
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS", help="Stop waiting, with exit code 8.")
@click.option("--any", "first", is_flag=True, help="Return when one of them has ended.")
@passed_on
@quiet_option()
@remote
@click.pass_context
def wait(context: click.Context, /, session: Session, jobs: tuple[str, ...], **options: Any) -> None:
    """Wait until jobs have ended. Exit code 0 if all succeeded, 10 if not, 8 after --timeout.

    With --exit-code: the exit code of the program of the first JOB that did not succeed.
    """
    client, timeout_s = session.client(), options["timeout_s"]
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    ids = [str(client.persistently(lambda ref=ref: client.job(ref), until_s)["id"]) for ref in jobs]  # type: ignore[misc]
    if options["first"] and len(ids) > 1:
        ended = [_first(client, ids, until_s)]
        _tell(session.out, ended[0])
    else:
        ended = wait_for_all(client, session.out, ids, until_s)
    context.exit(ended_code(client, ended, options["passed_on"]))


def wait_for_all(client: Client, out: Output, ids: list[str], until_s: float | None) -> list[Row]:
    """Wait for all jobs in order, and report how each ended. `until_s`: on the monotonic clock. Raises: WaitTimeoutError."""
    ended = []
    for id in ids:
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        ended.append(client.wait(id, left_s))
        _tell(out, ended[-1])
    return ended


def ended_code(client: Client, ended: list[Row], own: bool) -> int:
    """The exit code; with `own` that of the program of the first job that did not succeed."""
    bad = [str(job["id"]) for job in ended if job["state"] != "succeeded"]
    if not bad:
        return 0
    return program_code(client.persistently(lambda: client.job(bad[0]))) if own else JOB_FAILED_EXIT


def program_code(job: Row) -> int:
    """The program's exit code; 128 + its number for a signal, as in a shell; 10 if a job failed without either.

    `job`: everything about an ended job. It is 0 only for a job that succeeded.
    """
    if job["state"] == "succeeded":
        return 0
    failure = job["failure"] or {}
    if failure.get("exit_code"):
        return int(failure["exit_code"])
    return 128 + int(failure["signal"]) if failure.get("signal") else JOB_FAILED_EXIT


def _first(client: Client, ids: list[str], until_s: float | None) -> Row:
    """The first of several jobs that has ended. Raises: WaitTimeoutError."""
    while True:
        for id in ids:
            answer = client.persistently(lambda id=id: client.watch(id, wait_s=0.0), until_s)  # type: ignore[misc]
            if answer["job"]["state"] in ENDED:
                return dict(answer["job"])
        if until_s is not None and time.monotonic() >= until_s:
            raise WaitTimeoutError("none of the jobs has ended in time", "they keep running: tm ps")
        time.sleep(_LOOK_S)


def _tell(out: Output, job: Row) -> None:
    if out.json:
        out.stream(job)
    elif out.quiet:
        out.data(job["id"])
    else:
        took = human.duration((job["ended_s"] or 0.0) - (job["started_s"] or job["created_s"]))
        reason = f": {job['reason']} (tm show {job['id']})" if job["state"] != "succeeded" and job["reason"] else ""
        out.data(f"{job['id']} {job['state']} after {took}{reason}")
