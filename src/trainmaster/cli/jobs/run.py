"""`tm run`: submits a job and follows it."""

from typing import Any

import click

from trainmaster.cli.jobs.job_options import JobCommand, explained, keyed, with_job_options, with_source_option
from trainmaster.cli.jobs.submit import handed_in, told
from trainmaster.cli.jobs.wait import ended_code, passed_on, program_code, wait_for_all
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.submission import Draft
from trainmaster.errors import INTERRUPTED_EXIT, UsageError


@click.command(cls=JobCommand)
@with_job_options
@quiet_option()
@with_source_option
@keyed
@explained
@click.option("--detach", "-d", is_flag=True, help="Do not follow it.")
@click.option("--all-ranks", is_flag=True, help="Show the output of all ranks, not only of rank 0.")
@passed_on
@remote
@click.pass_context
def run(context: click.Context, /, session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Submit a job and follow it to its end.

    Exit code: 0 if it succeeded, 10 if not, 130 after Ctrl-C (the job keeps running). With --exit-code that of the program.

    \b
    tm run train.yaml --set lr=1e-4
    tm run --gpus 2 --checkpoint 'out/*.pt' -- python train.py
    tm run --set lr=1e-4 -- python train.py --lr {lr}
    tm run --array 0-9%2 -- python train.py --seed {index}
    tm run --after digits-3 --begin 22:00 -- python evaluate.py
    """
    detach, all_ranks, own_code = options.pop("detach"), options.pop("all_ranks"), options.pop("passed_on")
    if own_code and detach:
        raise UsageError("--exit-code and --detach cannot be combined", "get the exit code later: tm wait --exit-code JOB")
    draft, ids = handed_in(context, session, words, options)
    if detach:
        told(session, draft, ids)
        context.exit(0)
    context.exit(_followed(session, draft, ids, (all_ranks, own_code)))


def _followed(session: Session, draft: Draft | None, ids: list[str], asked: tuple[bool, bool]) -> int:
    """Follow the output of one job, or the ends of the jobs of an array; returns the exit code."""
    from trainmaster.cli.jobs.follow import Follower, detached  # noqa: PLC0415  # `tm submit` does not need it

    (all_ranks, own_code), client = asked, session.client()
    told(session, draft, ids, following=True)
    if len(ids) > 1:
        try:
            return ended_code(client, wait_for_all(client, session.out, ids, None), own_code)
        except KeyboardInterrupt:
            named = [*ids[:3], "…"] if len(ids) > 3 else ids
            session.out.note(f"\ndetached: {len(ids)} jobs go on; wait for them: tm wait {' '.join(named)}")
            return INTERRUPTED_EXIT
    follower = Follower(session, ids[0], rank=None if all_ranks else 0)
    try:
        code = follower.follow()
        return program_code(follower.job) if own_code else code
    except KeyboardInterrupt:
        follower.close()
        detached(session, ids[0])
        return INTERRUPTED_EXIT
