"""`tm why`: the reason a job waits, in plain words."""

import click

from trainmaster.cli.session import Session, remote


@click.command()
@click.argument("job")
@remote
def why(session: Session, job: str) -> None:
    """Why a job waits, and its position in the queue; of one that does not wait, how it stands."""
    answer, out = session.client().why(job), session.out
    if out.json:
        out.value(answer)
        return
    told = answer["position"] is None or "in the queue" in answer["reason"]
    place = "" if told else f", place {answer['position']} in the queue"
    out.data(f"{answer['state']}{place}" + (f": {answer['reason']}" if answer["reason"] else ""))
