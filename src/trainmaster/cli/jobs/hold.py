"""`tm hold` and `tm release`: one request per job. All are tried before the first error is reported."""

from collections.abc import Callable

import click

from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.client.api import Client, Row
from trainmaster.errors import TrainmasterError

_jobs = click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
_reason = click.option("--reason", default="", help="A reason; it is shown with the job.")


@click.command()
@_jobs
@_reason
@quiet_option()
@remote
def hold(session: Session, jobs: tuple[str, ...], reason: str) -> None:
    """Keep waiting jobs from starting."""

    def said(answer: Row) -> str:
        return f"is held; release it: tm release {answer['id']}"

    each(session, jobs, lambda client, ref: client.hold(ref, reason), said)


@click.command()
@_jobs
@quiet_option()
@remote
def release(session: Session, jobs: tuple[str, ...]) -> None:
    """Release held jobs."""
    each(session, jobs, lambda client, ref: client.release(ref), lambda row: "is released")


def each(session: Session, refs: tuple[str, ...], ask: Callable[[Client, str], Row], said: Callable[[Row], str]) -> None:
    """Send one request per job, and report each result; `said` makes the words behind the id from an answer."""
    client, out = session.client(start=True), session.out
    done: list[Row] = []
    refused: list[TrainmasterError] = []
    for ref in refs:
        try:
            answer = ask(client, ref)
        except TrainmasterError as error:
            if len(refs) == 1 or error.retryable:
                raise
            refused.append(error)
            out.note(f"error: {error.message}")
            continue
        done.append(answer)
        if out.quiet:
            out.data(answer["id"])
        elif not out.json:
            out.data(f"{answer['id']} {said(answer)}")
    if out.json:
        out.value(done)
    if refused:
        first = refused[0]
        raise type(first)(f"{len(refused)} of {len(refs)} were rejected, first: {first.message}", first.hint)
