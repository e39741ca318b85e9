"""`tm why`: says why a job waits and when it will start."""

import click

from trainmaster.cli.inspect import server_troubles
from trainmaster.cli.render import human
from trainmaster.cli.session import JOB, Session, remote
from trainmaster.client.api import Row

_FAR, _NEAR_S = 4.0, 300.0  # a bound so many times the middle, and so much later, is far from it
_GUESS = "a guess: no job has finished yet"
_AHEAD_MAX = 400  # of jobs further back the server makes no forecast (scheduling.explanation.forecast)


@click.command()
@click.argument("job", type=JOB)
@remote
def why(session: Session, job: str) -> None:
    """Show why a job waits, its position, a smallest set of changes that would let it start, and when it will start.

    For a job that does not wait, show its state.
    """
    answer, out = session.client().why(job), session.out
    if out.json:
        out.value(answer)
        return
    out.data(sentence(answer))
    if answer["state"] == "held":
        out.note(f"to start it now: tm release {answer['id']}")
    for one in answer.get("troubles", ()):  # missing in answers of older servers
        out.data(f"Warning: {human.trouble(one)}")
    if answer["position"] is not None and answer["kind"] not in ("impossible", "starting", None):
        out.data(expected(answer["eta_s"]) if answer["eta_s"] is not None else _unforeseen(answer))
    server_troubles.tell(session, session.client())


def sentence(answer: Row) -> str:
    """`digits-14 is queued: waiting for 2 GPUs`; a reason that names the job is already a sentence."""
    id, state, reason = str(answer["id"]), str(answer["state"]), str(answer["text"])
    if reason.startswith(f"{id} "):
        return reason
    verb = "has" if state in ("succeeded", "failed") else "was" if state == "cancelled" else "is"
    if not reason or reason.startswith(state):
        return f"{id} {verb} {reason or state}"
    return f"{id} {verb} {state}: {reason}"


def _unforeseen(answer: Row) -> str:
    """Why there is no estimate: nobody knows when nodes return or quotas change."""
    if answer["kind"] == "window":
        return "It cannot start before that is over; there is no estimate of when."
    if any(need["what"] in ("opens", "quota") for need in answer["needs"]):
        return "There is no estimate of when that will be."
    if answer["kind"] == "quota":
        return "There is no estimate of when its quota will let it start."
    return "There is no start estimate yet" + (": too many jobs are ahead of it." if answer["ahead"] >= _AHEAD_MAX else ".")


def expected(eta_s: Row) -> str:
    """A start estimate with its bounds, as a sentence. If the 90 % bound is far from the middle, it says the bound.

    From few finished jobs it is a guess: then it gives the bound alone.
    """
    half, most = (human.between(eta_s[f"low{share}"], eta_s[f"high{share}"]) for share in (50, 90))
    middle_s, latest_s = eta_s["p50"], eta_s["high90"]
    if latest_s is None:
        begin = "It may start only after a long time"
    elif eta_s["few"] or (latest_s > _FAR * middle_s and latest_s - middle_s > _NEAR_S):
        begin = f"It will probably start within {human.about(latest_s)}"
    else:
        begin = f"It will start in about {human.about(middle_s)}"
    return f"{begin} (90 %), {drawn(eta_s)}." if eta_s["few"] else f"{begin} (50 %: {half}; 90 %: {most})."


def drawn(eta_s: Row) -> str:
    """How reliable an estimate is that has `few` set."""
    return f"from few finished jobs ({eta_s['jobs']}): its bounds are unreliable" if eta_s["jobs"] else _GUESS
