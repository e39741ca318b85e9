"""`tm rerun`, `tm reproduce`, and `--from` of `tm run` and `tm submit`: make a job from another."""

import time
from typing import Any

import click

from trainmaster.cli.jobs.job_options import JobCommand, added_option, command_of, keyed, urgent_of
from trainmaster.cli.render import human
from trainmaster.cli.render.progress import values_of
from trainmaster.cli.session import JOB, Session, quiet_option, remote
from trainmaster.client import resubmit
from trainmaster.client.api import Client, Row
from trainmaster.client.submission import Explain, Options
from trainmaster.errors import INTERRUPTED_EXIT, UsageError
from trainmaster.wire.names import METRICS_ARRIVING, METRICS_MISSING

_ARRIVE_S, _LOOK_S = 60.0, 0.5  # so long for the last metric values

_param = click.option("--param", "--set", "params", multiple=True, metavar="K=V", help="Change a parameter of the job.")
_job = click.argument("job", type=JOB)


def forked(
    context: click.Context, session: Session, words: tuple[str, ...], options: dict[str, Any], explain: Explain | None
) -> Row:
    """Fork a job; returns the server's answer. `explain` is called with what goes along, if the fork has code of its own."""
    source, new_params, hold = options.pop("source"), options.pop("new_params"), options.pop("hold")
    urgent, key = urgent_of(options), options.pop("key")
    delayed = [f"--{name}" for name in ("after", "begin", "array") if options.pop(name)]
    if delayed:
        raise UsageError(f"--from and {delayed[0]} cannot be combined", "hold the fork, and release it later: --hold")
    if options.pop("in_place"):
        raise UsageError("--from and --in-place cannot be combined", "a fork runs in a directory of its own: --workdir DIR")
    if words:
        message = f"{words[0]!r} and --from cannot be combined: a fork has the spec of its parent"
        raise UsageError(message, f"change fields with options: tm {context.info_name} --from {source} --set lr=1e-4")
    command, said = command_of(context), _said(options)
    own_code = command is not None or "workdir" in said or "function" in said
    changes = resubmit.Changes(said, command, new_params, "held at submit" if hold else None, urgent, key, own_code)
    answer = resubmit.fork(session.client(start=True), source, changes, session.out.note, explain)
    code = f", with the code of {said.get('workdir', 'this directory')}" if own_code else ""
    session.out.note(_origin(answer["lineage"]) + code)
    return answer


def _origin(lineage: Row) -> str:
    """Where a fork starts."""
    about = "about " if lineage.get("approximate") else ""
    return f"starts from {lineage['job']}" + ("" if lineage["step"] is None else f", {about}step {lineage['step']}")


def _said(options: dict[str, Any]) -> Options:
    """The options that were given."""
    said: Options = Options(**{name: value for name, value in options.items() if value is not None and value != ()})  # type: ignore[typeddict-item]
    return said


class _RerunCommand(JobCommand):
    """A command whose usage line names the COMMAND after `--`, too."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The pieces after the command's name."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(cls=_RerunCommand)
@click.argument("job", type=JOB, metavar="JOB[@STEP]")
@_param
@added_option
@click.option("--continue", "onward", is_flag=True, help="Go on from its newest checkpoint (JOB@STEP: from that one).")
@click.option("--workdir", metavar="DIR", help="Take the code of this directory; default: the code of JOB.")
@click.option("--name", help="Another name; default: that of JOB.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", help="A tag to find the job by.")
@click.option("--priority", type=int, help="-100 to 100, higher goes first.")
@click.option("--time-limit", help="Maximum run time: 12h, 1h30m.")
@click.option("--hold", is_flag=True, help="Submit it held; start it with: tm release.")
@keyed
@quiet_option()
@remote
@click.pass_context
def rerun(context: click.Context, /, session: Session, job: str, **options: Any) -> None:
    """Run a job again, changed or not: a new job with its spec and code.

    It starts from the beginning, once JOB has ended. With --continue, or JOB@STEP, it goes on from a checkpoint. A COMMAND
    after -- replaces the command of JOB.

    \b
    tm rerun digits-3
    tm rerun digits-3 --set lr=1e-4
    tm rerun digits-3@450 --set lr=1e-4
    tm rerun digits-3 -- python train.py --epochs 40
    """
    new_params, hold, onward = options.pop("new_params"), options.pop("hold"), options.pop("onward")
    key, command, said, out = options.pop("key"), command_of(context), _said(options), session.out
    changes = resubmit.Changes(
        said, command, new_params, "held at submit" if hold else None, key=key, own_code="workdir" in said
    )
    answer = resubmit.rerun(session.client(start=True), job, changes, out.note, onward)
    lineage = answer["lineage"]
    if lineage["relation"] == "fork":
        out.note(_origin(lineage))
    if command is not None and not changes.own_code:
        out.note(f"runs the new command with the code of {lineage['job']}; with that of this directory: --workdir .")
    _told(session, answer, hold)


@click.command()
@_job
@click.option("--follow", "--wait", "-f", "follow", is_flag=True, help="Follow it to its end, and compare the metrics.")
@click.option("--hold", is_flag=True, help="Submit it held; start it with: tm release.")
@keyed
@quiet_option()
@remote
@click.pass_context
def reproduce(context: click.Context, /, session: Session, job: str, key: str | None, **options: bool) -> None:
    """Run a job again with the same code, spec, parameters and start, to see if the results are the same.

    Lists what cannot be kept equal. Exit code with -f: 0 if it succeeded, 10 if not.
    """
    out, client, follow, hold = session.out, session.client(start=True), options["follow"], options["hold"]
    answer = resubmit.reproduce(client, job, "held at submit" if hold else None, key)
    first, id = answer["lineage"]["job"], answer["id"]
    if not (out.quiet or out.json):
        out.note(f"equal to {first}: {'; '.join(answer['equal'])}")
        for line in answer["unequal"]:
            out.note(f"not equal: {line}")
    _told(session, answer, hold, following=follow)
    if not follow:
        return
    from trainmaster.cli.jobs.follow import Follower, detached  # noqa: PLC0415  # slow import; only for following

    follower = Follower(session, id, rank=0)
    try:
        code = follower.follow()
    except KeyboardInterrupt:
        follower.close()
        detached(session, id)
        context.exit(INTERRUPTED_EXIT)
    if not (out.quiet or out.json):
        both = arrived(client, first, id)
        for line in compared(*both):
            out.data(line)
        for told in (f"{job['id']}: {note}" for job in both for note in job["notes"] if note.startswith(METRICS_MISSING)):
            out.note(told)
    context.exit(code)


def arrived(client: Client, *jobs: str) -> list[Row]:
    """The jobs, once their last metric values are there, which may come seconds after their end; or else as they are."""
    until_s = time.monotonic() + _ARRIVE_S
    while True:
        found = [client.job(job) for job in jobs]
        late = any(note.startswith(METRICS_ARRIVING) for job in found for note in job["notes"])
        if not late or time.monotonic() > until_s:
            return found
        time.sleep(_LOOK_S)


def compared(first: Row, second: Row) -> list[str]:
    """The last value of every metric of both jobs, and whether they are equal to the last bit; their steps, if these differ."""
    lines, values = [], (values_of(first), values_of(second))
    for name in dict.fromkeys((*values[0], *values[1])):
        then, now = (mine.get(name) for mine in values)
        if then is None or now is None:
            lines.append(f"{name}: only in {(first if now is None else second)['id']}")
            continue
        steps = [job["metrics"][name]["step"] for job in (first, second)]
        at = [" before its first step" if step is None else f" at step {step}" for step in steps]
        at = ["", ""] if steps[0] == steps[1] else at
        if then == now:
            lines.append(f"{name}: {human.number(now)} in both" + (f",{at[0]} and{at[1]}" if at[0] else ""))
        else:
            lines.append(f"{name}: {then!r}{at[0]} in {first['id']}, {now!r}{at[1]} in {second['id']}")
    return lines


def _told(session: Session, answer: Row, hold: bool, following: bool = False) -> None:
    """Print the new job's id and the next command."""
    out, id = session.out, answer["id"]
    with out.accepted([id]):
        if out.json:
            out.stream(answer)
        elif out.quiet or not following:
            out.data(id)
    if out.quiet or out.json:
        return
    out.note(f"submitted {id}" if following else f"next: tm release {id}" if hold else f"next: tm logs -f {id}   tm show {id}")
