"""`tm why`: the reason a job waits, in plain words, and when it will start."""

import click

from trainmaster.cli.inspect import server_troubles
from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import Row

_GUESS = "a guess: no job that ran is over yet"


@click.command()
@click.argument("job", type=JOB)
@remote
def why(session: Session, job: str) -> None:
    """Why a job waits, its position, and what would let it start: a smallest set of changes; then when it will, with bounds.

    Of a job that does not wait, how it stands.
    """
    answer, out = session.client().why(job), session.out
    if out.json:
        out.value(answer)
        return
    out.data(sentence(answer))
    for one in answer.get("troubles", ()):  # a server of an older version has none
        out.data(f"Warning: {human.trouble(one)}")
    if answer["position"] is not None and answer["kind"] not in ("impossible", "starting", None):
        out.data(expected(answer["eta_s"]) if answer["eta_s"] is not None else _unforeseen(answer))
    server_troubles.tell(session, session.client())


def sentence(answer: Row) -> str:
    """`digits-14 is queued: waiting for 2 GPUs`; a reason that names the job is a sentence already."""
    id, state, reason = str(answer["id"]), str(answer["state"]), str(answer["text"])
    if reason.startswith(f"{id} "):
        return reason
    verb = "has" if state in ("succeeded", "failed") else "was" if state == "cancelled" else "is"
    if not reason or reason.startswith(state):
        return f"{id} {verb} {reason or state}"
    return f"{id} {verb} {state}: {reason}"


def _unforeseen(answer: Row) -> str:
    """Why there is no estimate: nodes that are away and quotas change when somebody changes them."""
    if answer["kind"] == "window":
        return "It cannot start before that is over; nobody can say yet how soon after."
    if any(need["what"] in ("opens", "quota") for need in answer["needs"]):
        return "Nobody can say when that will be."
    return "Nobody can say yet when it will start" + (": too many jobs are ahead of it." if answer["ahead"] else ".")


def expected(eta_s: Row) -> str:
    """A start estimate with its bounds."""
    half, most = (human.between(eta_s[f"low{share}"], eta_s[f"high{share}"]) for share in (50, 90))
    said = f"It will start in about {human.about(eta_s['p50'])} (50 %: {half}; 90 %: {most})"
    return f"{said}{f', {drawn(eta_s)}' if eta_s['few'] else ''}."


def drawn(eta_s: Row) -> str:
    """What an estimate of which `few` is true is worth."""
    return f"from few finished jobs ({eta_s['jobs']}): its bounds may be far off" if eta_s["jobs"] else _GUESS
