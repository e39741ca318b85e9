"""Amounts in a person's words."""

from trainmaster.model.spec import Resources
from trainmaster.scheduling.request import Request

_RATES = ((1e12, "Tbps"), (1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps"))


def describe(ask: Request) -> str:
    """The whole request."""
    each = ask.each
    if each.nodes == 1:
        return per_node(ask.first) + (" (its roles included)" if ask.lead else "")
    roles = f" and {per_node(ask.lead)} on the first, for its roles," if ask.lead else ","
    return f"{each.nodes} nodes with {per_node(each)} each{roles} all at once"


def per_node(ask: Resources) -> str:
    """What one member of the gang asks for."""
    words = []
    if ask.gpus:
        words.append(gpus(ask.gpus, ask.gpu_kind))
    words.append(cpus(ask.cpus))
    if ask.memory_bytes:
        words.append(memory(ask.memory_bytes))
    words += [counted(name, amount) for name, amount in ask.counted]
    return ", ".join(words)


def gpus(count: int, kind: str | None) -> str:
    """`2 h100 GPUs`."""
    return f"{count} {kind + ' ' if kind else ''}GPU{'s' * (count != 1)}"


def cpus(count: float) -> str:
    """`1.5 CPUs`."""
    return f"{count:g} CPU{'s' * (count != 1)}"


def memory(count: int) -> str:
    """`64 GiB of memory`."""
    return f"{size(count)} of memory"


def counted(name: str, amount: float) -> str:
    """Of what is counted besides, under the name that nodes have it by: `10 GiB of disk`, `1 license`."""
    if name == "disk_bytes":
        return f"{size(amount)} of disk"
    if name == "network_bps":
        return f"{rate(amount)} of network"
    group, _, own = name.partition(".")
    return f"{amount:g} {own} accelerator{'s' * (amount != 1)}" if group == "accelerators" else f"{amount:g} {own}"


def size(count: float) -> str:
    """`4 TiB`, `0.5 GiB`."""
    return f"{count / 2**40:.4g} TiB" if count >= 2**40 else f"{count / 2**30:.4g} GiB"


def rate(rate_bps: float) -> str:
    """`2.5 Gbps`."""
    factor, unit = next(((f, u) for f, u in _RATES if rate_bps >= f), (1.0, "bps"))
    return f"{rate_bps / factor:.4g} {unit}"
