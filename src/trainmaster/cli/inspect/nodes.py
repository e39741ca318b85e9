"""`tm nodes`: lists, drains and resumes nodes, and declares nodes lost."""

import click

from trainmaster.cli.render import human
from trainmaster.cli.session import NODE, Session, quiet_option, remote
from trainmaster.client.api import Row

_HEADERS = ("NODE", "STATE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "ALSO FREE", "JOBS")
_SPARE = (5,)  # columns dropped first on a narrow terminal
_SAID = {
    "drain": "{name} is drained: it finishes its running jobs; use it again: tm nodes resume {name}",
    "resume": "{name} accepts jobs again",
    "lost": "{name} is declared lost: its jobs start elsewhere; use it again: tm nodes resume {name}",
}


@click.group(invoke_without_command=True)
@quiet_option
@remote
@click.pass_context
def nodes(context: click.Context, session: Session) -> None:
    """Manage nodes: list, drain, resume, declare lost."""
    if context.invoked_subcommand is None:
        _list(session)


@nodes.command("list")
@quiet_option
@remote
def list_nodes(session: Session) -> None:
    """List the nodes and their free capacity."""
    _list(session)


@nodes.command()
@click.argument("name", type=NODE)
@click.option("--reason", default="", help="A reason; it is shown with the node.")
@remote
def drain(session: Session, name: str, reason: str) -> None:
    """Start no new jobs on a node; its running jobs continue."""
    _set(session, name, "drain", reason)


@nodes.command()
@click.argument("name", type=NODE)
@remote
def resume(session: Session, name: str) -> None:
    """Use a node again."""
    _set(session, name, "resume", "")


@nodes.command(short_help="Declare that nothing runs on a node any more.")
@click.argument("name", type=NODE)
@click.option("--reason", default="", help="A reason; it is shown with the node.")
@remote
def lost(session: Session, name: str, reason: str) -> None:
    """Declare that nothing runs on a node any more, so that its jobs may start elsewhere."""
    _set(session, name, "lost", reason)


def _list(session: Session) -> None:
    found, out = session.client().nodes(), session.out
    if out.json:
        out.value(found)
    elif out.quiet:
        for node in found:
            out.data(node["name"])
    else:
        out.table(_HEADERS, [_row(node) for node in found], state=1, spare=_SPARE)


def _kind(device: Row) -> str:
    kind = str(device["kind"])
    return f"{kind} (stand-in)" if device["stand_in"] and kind != "stand-in" else kind


def _row(node: Row) -> list[str]:
    free, kinds = node["free"], sorted({_kind(device) for device in node["devices"]})
    gpus = f"{free['gpus']:g} of {len(node['devices'])} {', '.join(kinds)}" if node["devices"] else "none"
    memory = human.memory_of(free["memory_bytes"], node["memory_bytes"])
    state = f"{node['state']} {node['state_reason']}".rstrip()
    also = ", ".join(_counted(name, free["counted"][name], whole) for name, whole in node["counted"].items())
    jobs = ", ".join(node["jobs"]) or "-"
    return [node["name"], state, f"{free['cpus']:g} of {node['cpus']:g}", memory, gpus, also or "-", jobs]


def _counted(name: str, part: float, whole: float) -> str:
    """`disk 90 of 120 GiB`, `license 1 of 2`, with the names used in specs."""
    if name == "disk_bytes":
        return f"disk {human.memory_of(part, whole)}"
    if name == "network_bps":
        return f"network {human.rate_of(part, whole)}"
    return f"{name.partition('.')[2]} {part:g} of {whole:g}"


def _set(session: Session, name: str, verb: str, reason: str) -> None:
    answer, out = session.client(start=True).set_node(name, verb, reason), session.out
    if out.json:
        out.value(answer)
    else:
        out.data(_SAID[verb].format(name=name))
