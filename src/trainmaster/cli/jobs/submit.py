"""`tm submit`: submits a job."""

from collections.abc import Mapping
from typing import Any

import click

from trainmaster.cli.jobs.job_options import JobCommand, draft_of, explained, keyed, with_job_options, with_source_option
from trainmaster.cli.jobs.standard_input import check_input
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import server_known
from trainmaster.client.origin import staying
from trainmaster.client.submission import Draft, Explain, send, send_array


@click.command(cls=JobCommand)
@with_job_options
@quiet_option()
@with_source_option
@keyed
@explained
@remote
@click.pass_context
def submit(context: click.Context, /, session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Submit a job and print its id.

    \b
    tm submit train.yaml
    tm submit --gpus 2 -- python train.py --epochs 20
    tm submit job.sh            # a batch script of Slurm
    """
    draft, ids = handed_in(context, session, words, options)
    told(session, draft, ids)


def handed_in(
    context: click.Context, session: Session, words: tuple[str, ...], options: dict[str, Any]
) -> tuple[Draft | None, list[str]]:
    """Submit the described job or array; returns its draft (None for a fork) and the ids."""
    explain = _explain(session) if options.pop("verbose") else None
    if options["source"] is not None:
        from trainmaster.cli.jobs.resubmit import forked  # noqa: PLC0415  # few jobs are forks

        return None, [str(forked(context, session, words, options, explain)["id"])]
    options.pop("source")
    draft = draft_of(context, words, options)
    ignored = check_input(draft.spec.get("command") or ()) if draft.file is None else ""
    if ignored:
        session.out.note(ignored)
    return draft, _send(session, draft, explain)


def _explain(session: Session) -> Explain:
    """Prints what goes along, on standard error."""

    def explain(along: Mapping[str, Any]) -> None:
        from trainmaster.cli.render.goes_along import draw  # noqa: PLC0415  # only with -v

        for line in draw(along) if along else ["it has the code and the variables of the job that it starts from"]:
            session.out.note(line)

    return explain


def _send(session: Session, draft: Draft, explain: Explain | None) -> list[str]:
    """Submit a draft; returns the ids of its jobs."""
    if not server_known(session.server):  # report mistakes before starting a server for the job
        from trainmaster.client.files import check  # noqa: PLC0415  # a running server validates it anyway

        check(draft)
    client = session.client(start=True)
    try:
        if draft.array is not None:
            return send_array(client, draft, draft.array, session.out.note, explain)
        return [send(client, draft, session.out.note, explain)]
    except KeyboardInterrupt:
        session.out.note("interrupted during the submit; to see if it was accepted: tm ps")
        raise


def told(session: Session, draft: Draft | None, ids: list[str], following: bool = False) -> None:
    """Report that the jobs were accepted."""
    out, id = session.out, ids[0]
    with out.accepted(ids):
        for one in ids:
            if out.json:
                out.stream({"id": one})
            elif out.quiet or not following:
                out.data(one)
    if out.quiet or out.json:
        return
    if draft is not None and draft.in_place:
        out.note(f"it runs in {draft.directory} itself, so later changes there affect it")
    for line in (*draft.notes, *staying(draft.spec)) if draft is not None else ():
        out.note(line)
    if following:
        what = id if len(ids) == 1 else f"{len(ids)} jobs, {id} to {ids[-1]}"
        out.note(f"submitted {what}; Ctrl-C detaches and leaves {'it' if len(ids) == 1 else 'them'} running")
    elif draft is not None and draft.start is not None:
        out.note(f"next: tm why {id}   to start it without waiting: tm release {id}")
    else:
        out.note(f"next: tm release {id}" if draft is not None and draft.hold else f"next: tm logs -f {id}   tm show {id}")
