"""`tm nodes`: the machines, and what a person says of one."""

import click

from trainmaster.cli import words
from trainmaster.cli.session import Session, quiet_option, remote
from trainmaster.client.api import Row

_HEADERS = ("NODE", "STATE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "JOBS")
_SAID = {
    "drain": "{name} is drained: it finishes what it runs; use it again: tm nodes resume {name}",
    "resume": "{name} takes jobs again",
    "lost": "{name} is declared lost: its jobs start elsewhere; use it again: tm nodes resume {name}",
}


@click.group(invoke_without_command=True)
@quiet_option
@remote
@click.pass_context
def nodes(context: click.Context, session: Session) -> None:
    """The machines: list, drain, resume, declare lost."""
    if context.invoked_subcommand is None:
        _list(session)


@nodes.command("list")
@quiet_option
@remote
def list_nodes(session: Session) -> None:
    """What there is, and what of it is free."""
    _list(session)


@nodes.command()
@click.argument("name")
@click.option("--reason", default="", help="Why; it is shown with the node.")
@remote
def drain(session: Session, name: str, reason: str) -> None:
    """Give a node nothing new; what it runs goes on."""
    _set(session, name, "drain", reason)


@nodes.command()
@click.argument("name")
@remote
def resume(session: Session, name: str) -> None:
    """Use a node again."""
    _set(session, name, "resume", "")


@nodes.command(short_help="Say that nothing runs there any more.")
@click.argument("name")
@click.option("--reason", default="", help="Why; it is shown with the node.")
@remote
def lost(session: Session, name: str, reason: str) -> None:
    """Say that nothing runs on a node any more, so that its jobs may start elsewhere."""
    _set(session, name, "lost", reason)


def _list(session: Session) -> None:
    found, out = session.client().nodes(), session.out
    if out.json:
        out.value(found)
    elif out.quiet:
        for node in found:
            out.data(node["name"])
    else:
        out.table(_HEADERS, [_row(node) for node in found], state=1)


def _kind(device: Row) -> str:
    kind = str(device["kind"])
    return f"{kind} (stand-in)" if device["stand_in"] and kind != "stand-in" else kind


def _row(node: Row) -> list[str]:
    free, kinds = node["free"], sorted({_kind(device) for device in node["devices"]})
    gpus = f"{len(free['devices'])} of {len(node['devices'])} {', '.join(kinds)}" if node["devices"] else "none"
    memory = words.memory_of(free["memory_bytes"], node["memory_bytes"])
    state = f"{node['state']} {node['state_reason']}".rstrip()
    return [node["name"], state, f"{free['cpus']:g} of {node['cpus']:g}", memory, gpus, ", ".join(node["jobs"]) or "-"]


def _set(session: Session, name: str, verb: str, reason: str) -> None:
    answer, out = session.client().set_node(name, verb, reason), session.out
    if out.json:
        out.value(answer)
    else:
        out.data(_SAID[verb].format(name=name))
