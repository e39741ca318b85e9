"""`tm nodes`: lists, drains and resumes nodes, and declares nodes lost. `tm gpus`: lists GPUs and their use."""

import time

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.session import NODE, Session, quiet_option, remote
from trainmaster.client.api import Row

_HEADERS = ("NODE", "STATE", "CPUS FREE", "MEMORY FREE", "GPUS FREE", "ALSO FREE", "JOBS")
_LABELS = "LABELS"  # a column in front of the last one, if any node has one
_GPU_HEADERS = ("NODE", "GPU", "KIND", "JOBS", "BUSY", "MEMORY", "HELD, {period}", "BUSY, {period}")
_SPARE = (5,)  # columns dropped first on a narrow terminal
_SAID = {
    "drain": "{name} is drained: it finishes its running jobs; use it again: tm nodes resume {name}",
    "resume": "{name} accepts jobs again",
    "lost": "{name} is declared lost: its jobs start elsewhere; use it again: tm nodes resume {name}",
}


@click.group(invoke_without_command=True)
@quiet_option("Print names only.")
@remote
@click.pass_context
def nodes(context: click.Context, session: Session) -> None:
    """Manage nodes: list, drain, resume, declare lost."""
    if context.invoked_subcommand is None:
        _list(session)


@nodes.command("list")
@quiet_option("Print names only.")
@remote
def list_nodes(session: Session) -> None:
    """List the nodes, their free capacity and their labels."""
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
    elif any(node.get("labels") for node in found):  # a server of an older version does not say
        rows = [[*cells[:-1], _labels(node), cells[-1]] for node in found for cells in [_row(node)]]
        out.table((*_HEADERS[:-1], _LABELS, _HEADERS[-1]), rows, state=1, spare=(*_SPARE, len(_HEADERS) - 1))
    else:
        out.table(_HEADERS, [_row(node) for node in found], state=1, spare=_SPARE)


def _labels(node: Row) -> str:
    """`rack r1, zone a`."""
    return ", ".join(f"{name} {value}" for name, value in (node.get("labels") or {}).items()) or "-"


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
    answer, out = session.client().set_node(name, verb, reason), session.out
    if out.json:
        out.value(answer)
    else:
        out.data(_SAID[verb].format(name=name))


@click.command()
@click.option("--since", default="1h", show_default=True, metavar="WHEN", help="Beginning of HELD and BUSY: 1h (ago), 2d.")
@quiet_option("Print NODE:GPU only.")
@remote
def gpus(session: Session, since: str) -> None:
    """List the GPUs of all nodes: who uses them, how busy they are now, and how much they were used lately.

    HELD: the share of the period in which jobs held it. BUSY: measured by its driver while a job held it.
    """
    now_s = time.time()
    period_s = now_s - times.moment(since, "--since", now_s)
    found, out = session.client().gpus(period_s), session.out
    if out.json:
        out.value(found)
    elif out.quiet:
        for gpu in found["gpus"]:
            out.data(f"{gpu['node']}:{gpu['index']}")
    elif not found["gpus"]:
        out.note("no node has a GPU")
    else:
        headers = [name.format(period=human.duration(period_s)) for name in _GPU_HEADERS]
        out.table(headers, [_gpu_row(gpu) for gpu in found["gpus"]], spare=_SPARE)
        out.note(_total(found["gpus"], human.duration(period_s)))


def _gpu_row(gpu: Row) -> list[str]:
    users = [one["job"] + (f" ({one['share']:g} of it)" if one["share"] < 1 else "") for one in gpu["users"]]
    jobs = ", ".join(users) or ("-" if gpu["state"] == "up" else f"- ({gpu['state']})")
    memory = "-" if gpu["memory_bytes"] is None else human.memory(gpu["memory_bytes"])
    used = [_percent(gpu["busy_percent"]), memory, _percent(100 * gpu["held"]), _percent(gpu["busy"])]
    return [gpu["node"], str(gpu["index"]), _kind(gpu), jobs, *used]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _total(gpus: list[Row], period: str) -> str:
    """One line about all of them."""
    held = sum(gpu["held"] for gpu in gpus) / len(gpus)
    busy = [gpu["busy"] for gpu in gpus if gpu["busy"] is not None]
    measured = f", {sum(busy) / len(busy):.0f} % busy while held" if busy else ""
    free = sum(not gpu["users"] for gpu in gpus)
    return f"{free} of {human.plural(len(gpus), 'GPU')} free; in the last {period}: {100 * held:.0f} % held{measured}"
