"""`tm why`: the reason a job waits, in plain words."""

import click

from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import Row


@click.command()
@click.argument("job", type=JOB)
@remote
def why(session: Session, job: str) -> None:
    """Why a job waits, and its position in the queue; of one that does not wait, how it stands."""
    answer, out = session.client().why(job), session.out
    if out.json:
        out.value(answer)
        return
    out.data(sentence(answer))


def sentence(answer: Row) -> str:
    """`digits-14 is queued: waiting for 2 GPUs`; a reason that names the job is a sentence already."""
    id, state, reason = str(answer["id"]), str(answer["state"]), str(answer["reason"])
    if reason.startswith(f"{id} "):
        return reason
    verb = "has" if state in ("succeeded", "failed") else "was" if state == "cancelled" else "is"
    if not reason or reason.startswith(state):
        return f"{id} {verb} {reason or state}"
    return f"{id} {verb} {state}: {reason}"
