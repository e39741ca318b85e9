"""`tm run`: submits a job and follows it."""

from typing import Any

import click

from trainmaster.cli.jobs.job_options import JobCommand, explained, keyed, with_job_options, with_source_option
from trainmaster.cli.jobs.submit import handed_in, told
from trainmaster.cli.session import Session, remote
from trainmaster.errors import INTERRUPTED_EXIT


@click.command(cls=JobCommand)
@with_job_options
@with_source_option
@keyed
@explained
@click.option("--detach", "-d", is_flag=True, help="Do not follow it.")
@click.option("--all-ranks", is_flag=True, help="Show the output of all ranks, not only of rank 0.")
@remote
@click.pass_context
def run(
    context: click.Context, /, session: Session, words: tuple[str, ...], detach: bool, all_ranks: bool, **options: Any
) -> None:
    """Submit a job and follow it to its end.

    Exit code: 0 if it succeeded, 10 if not, 130 after Ctrl-C (the job keeps running).

    \b
    tm run train.yaml --set lr=1e-4
    tm run --gpus 2 --checkpoint 'out/*.pt' -- python train.py
    """
    draft, id = handed_in(context, session, words, options)
    from trainmaster.cli.jobs.follow import Follower, detached  # noqa: PLC0415  # `tm submit` does not need it

    follower = Follower(session, id, rank=None if all_ranks else 0)
    try:
        told(session, draft, id, following=not detach)
        code = 0 if detach else follower.follow()
    except KeyboardInterrupt:
        follower.close()
        detached(session, id)
        code = INTERRUPTED_EXIT
    context.exit(code)
