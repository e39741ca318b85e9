"""`tm plan` and `tm render`: show what a submit would do, or what an engine would run. Nothing is submitted."""

import json
from pathlib import Path
from typing import Any

import click

from trainmaster.cli.admin.cluster import foreseen, lays_down
from trainmaster.cli.inspect.why import expected
from trainmaster.cli.jobs.job_options import JobCommand, draft_of, with_job_options
from trainmaster.cli.render import goes_along, human
from trainmaster.cli.session import Session, offline, quiet_option, remote
from trainmaster.client.api import Row
from trainmaster.client.code_copy.listing import git_state
from trainmaster.client.files import check, foresee_here
from trainmaster.client.origin import origin
from trainmaster.client.servers.embedded import AbsentError
from trainmaster.client.submission import Draft, foresee
from trainmaster.errors import UsageError

_ENGINES = ("local",)
_DELAYS_MAX = 5
_TO_COME = ("ray", "slurm", "kubernetes")


@click.command(cls=JobCommand)
@with_job_options
@quiet_option("Print the plan only, without notes on it.")
@remote
@click.pass_context
def plan(context: click.Context, /, session: Session, words: tuple[str, ...], **options: Any) -> None:
    """Show what a submit of a job, or an apply of a cluster.yaml, would do. Nothing is changed.

    Shows what would be run, which files would be copied, linked or left out and why, which variables go along, and the
    scheduler's decision: where the job would start now, or why it would wait, at which position and for how long; what it
    would cost, and which jobs it would delay. Starts no server; without one, it shows what is known on this machine.

    \b
    tm plan train.yaml
    tm plan cluster.yaml
    tm plan --gpus 8 -- python train.py
    """
    if len(words) == 1 and lays_down(Path(words[0])):
        foreseen(session, Path(words[0]))
        return
    draft, out = draft_of(context, words, options), session.out
    found, decided = _found(session, draft)
    if draft.array is not None:
        found["array"] = draft.array._asdict()
    if out.json:
        out.value(found)
        return
    starts = _decision(found) if decided else [f"starts   not known: {found['reason']}"]
    for line in [*_job(found), *starts, *(f"note     {line}" for line in found["notes"])]:
        out.data(line)
    if not out.quiet:
        for line in draft.notes:
            out.note(line)
        out.note("nothing was submitted; to submit it: tm submit, with the same arguments")


def _found(session: Session, draft: Draft) -> tuple[Row, bool]:
    """The plan, and whether a scheduler decided; without a server, what is known on this machine."""
    try:
        client = session.client()
    except AbsentError as error:
        return foresee_here(draft, f"{error.message}; {error.hint}"), False
    return foresee(client, draft), True


def _job(found: Row) -> list[str]:
    """What would run, as lines of text."""
    spec, code = found["spec"], found["code"]
    lines = [f"job      {spec['name']} (project {spec['project']}, experiment {spec['experiment']})"]
    if array := found.get("array"):
        bound = f", at most {array['at_most']} at once" if array["at_most"] else ""
        lines.append(f"array    {human.plural(len(array['indices']), 'job')} such as this one{bound}")
    lines += [f"{'command' if not n else '':8} {line}" for n, line in enumerate(_command(spec).splitlines() or [""])]
    if code["files"] or found["linked"] or found["left_out"]:
        linked = f", {human.plural(len(found['linked']), 'path')} linked" if found["linked"] else ""
        linked += f", {len(found['left_out']):,} left out" if found["left_out"] else ""
        copied = f"{human.plural(code['files'], 'file')}, {human.size(code['bytes'])} copied{linked}"
        lines.append(f"code     {copied}, from {found['directory']}")
    elif found["in_place"]:
        lines.append(f"code     none copied: it runs in {found['directory']}")
    else:
        lines.append(f"code     none: {found['directory']} is empty; it runs in a directory of its own")
    lines += goes_along.draw(found)
    asked = _asked(spec)
    lines.append(f"asks for {_listed(asked)}")
    lines += [f"{'roles' if not n else '':8} {line}" for n, line in enumerate(_roles(spec))]
    return [*lines, f"limits   {_limits(spec)}"]


def _decision(found: Row) -> list[str]:
    """The scheduler's decision and its consequences, as lines of text."""
    placement = found["placement"]
    if placement is None:
        lines = [f"waits    {found['reason']}"]
        if found["eta_s"] is not None:
            lines.append(f"         {expected(found['eta_s'])}")
    else:
        heads = ["starts   now, on ", *[" " * 17] * (len(placement) - 1)]
        lines = [head + _share(share) for head, share in zip(heads, placement, strict=True)]
    if found["cost"] is not None:
        lines.append(f"costs    {_cost(found['cost'])}")
    return [*lines, *_delays(found["delays"])]


def _asked(spec: Row) -> Row:
    """The requested resources, formatted for reading."""
    asked = dict(spec["resources"])
    if isinstance(asked["gpus"], list):
        asked["gpus"] = " or ".join(asked["gpus"])
    most = (spec.get("elastic") or {}).get("nodes_max", 0)
    if most > asked["nodes"]:
        asked["nodes"] = f"{asked['nodes']} to {most}"
    return asked


def _roles(spec: Row) -> list[str]:
    """What each role asks for, besides what the ranks do."""
    roles = spec.get("roles") or {}
    return [f"{name} asks for {_listed(role['resources'])}, on the first node" for name, role in roles.items()]


def _listed(asked: Row) -> str:
    """`cpus 0.5, memory 2GiB`."""
    return ", ".join(f"{name} {value}" for name, value in asked.items())


def _cost(cost: Row) -> str:
    """The expected and the maximum cost."""
    most = "" if cost["at_most"] is None else f"; {cost['at_most']:,.2f} for its whole time limit"
    guess = ", a guess: few jobs have finished yet" if cost.get("few") else ""  # a server of an older version does not say
    ran = f"{cost['per_hour']:,.2f} an hour, for about {human.about(cost['run_s'])}{guess}"
    return f"about {cost['expected']:,.2f} {cost['currency']} ({ran}{most})"


def _delays(delays: list[Row]) -> list[str]:
    """The jobs that would start later because of it."""
    heads = ["delays   ", *[" " * 9] * (_DELAYS_MAX - 1)]
    told = [f"{head}{one['job']} by about {human.about(one['by_s'])}" for head, one in zip(heads, delays, strict=False)]
    return [*told, f"         and {len(delays) - _DELAYS_MAX:,} more"] if len(delays) > _DELAYS_MAX else told


def _command(spec: Row) -> str:
    command = spec.get("command") or f"{spec.get('python')}(**params)"
    return command if isinstance(command, str) else " ".join(map(str, command))


def _limits(spec: Row) -> str:
    """Time limit, restarts and resume behavior."""
    limit = human.duration(spec["time_limit"]) if spec.get("time_limit") else "no time limit"
    paid, checkpoint = spec["restarts"], spec["checkpoint"].get("path")
    restarts = f"restarts: {paid['program']} after failures of the program, {paid['infrastructure']} after failures of machines"
    arguments = spec["checkpoint"].get("resume_arguments")
    given = f", with {arguments} added to the command" if arguments else ""
    newest = f"resumes from the newest {checkpoint}{given}"
    resumes = newest if checkpoint else "is given no checkpoint when it is restarted (no checkpoint.path)"
    return f"{limit}; {restarts}; {resumes}"


def _share(share: Row) -> str:
    part = f"{share['gpus']:g} of " if share["gpus"] != len(share["devices"]) else ""
    devices = f", {part}GPU {', '.join(map(str, share['devices']))}" if share["devices"] else ""
    memory = f", {human.memory(share['memory_bytes'])}" if share["memory_bytes"] else ""
    return f"{share['node']}: {share['cpus']:g} CPU{'s' * (share['cpus'] != 1)}{memory}{devices}"


@click.command(cls=JobCommand)
@with_job_options
@click.option("--engine", default="local", show_default=True, help="The engine.")
@offline
@click.pass_context
def render(context: click.Context, /, session: Session, words: tuple[str, ...], engine: str, **options: Any) -> None:
    """Print exactly what an engine would run: for each node the command, its environment and its files.

    Needs no server. Node names and values that only a submit creates (id, credential, code copy) are placeholders.
    """
    if engine in _TO_COME:
        raise UsageError(f"there is no engine {engine} yet", "known: local")
    if engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}", f"known: {', '.join(_ENGINES)}")
    from trainmaster import compose  # noqa: PLC0415  # imports all adapters; only `tm render` needs them

    draft = draft_of(context, words, options)
    spec = check(draft)
    git = git_state(str(draft.directory))
    place = origin(draft.directory, (git.commit, git.dirty))
    rendered = compose.rendered(spec, place, draft.in_place)
    if session.out.json:
        session.out.value([json.loads(text) for text in rendered])
    else:
        session.out.raw("\n".join(rendered) + "\n")
