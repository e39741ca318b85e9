"""Amounts and requests as text for users."""

from collections.abc import Collection, Mapping

from trainmaster.scheduling.model.domains import BOTH
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape

SHRINKS = "give back nodes for it and go on with fewer"
_TERMS = {"workload_class": "class", "priority": "own priority"}
_RATES = ((1e12, "Tbps"), (1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps"))


def describe(ask: Ask) -> str:
    """The whole request."""
    if ask.nodes == 1:
        return per_node(ask.first) + (" (its roles included)" if ask.lead else "")
    roles = f" and {per_node(ask.lead)} on the first, for its roles," if ask.lead else ","
    place = f" in one {ask.within.rpartition(BOTH)[2]}," if ask.within is not None else ""
    return f"{ask.nodes} nodes with {per_node(ask.each)} each{roles}{place} all at once"


def per_node(shape: Shape) -> str:
    """What one member of a gang asks for."""
    words = []
    if shape.gpu_milli:
        words.append(gpus(shape.gpu_milli, kinds(shape)))
    words.append(cpus(shape.cpus))
    if shape.memory:
        words.append(memory(shape.memory))
    words += [counted(name, amount) for name, amount in shape.counted]
    return ", ".join(words) + (f" in pool {shape.pool}" if shape.pool is not None else "")


def kinds(shape: Shape) -> str:
    """`h100`, `a100 or h100`; "" if any kind will do."""
    return " or ".join(shape.kinds)


def gpus(milli: int, kind: str = "") -> str:
    """`2 h100 GPUs`, `0.25 GPUs`."""
    return f"{milli / WHOLE:g} {kind + ' ' if kind else ''}GPU{'s' * (milli != WHOLE)}"


def cpus(milli: int) -> str:
    """`1.5 CPUs`."""
    return f"{milli / WHOLE:g} CPU{'s' * (milli != WHOLE)}"


def memory(count: int) -> str:
    """`64 GiB of memory`."""
    return f"{size(count)} of memory"


def counted(name: str, milli: int) -> str:
    """An amount of another counted resource, by its name on nodes: `10 GiB of disk`, `1 license`."""
    if name == "disk_bytes":
        return f"{size(milli / WHOLE)} of disk"
    if name == "network_bps":
        return f"{rate(milli / WHOLE)} of network"
    group, _, own = name.partition(".")
    amount = f"{milli / WHOLE:g} {own}"
    return f"{amount} accelerator{'s' * (milli != WHOLE)}" if group == "accelerators" else amount


def duration(seconds: float) -> str:
    """`90 s`, `30 min`, `2 h`: in the largest unit that gives a whole number."""
    unit, factor = next(
        (unit, factor) for unit, factor in (("h", 3600), ("min", 60), ("s", 1)) if seconds % factor == 0 or factor == 1
    )
    return f"{seconds / factor:g} {unit}"


def length(seconds: float) -> str:
    """`48 h`, `23 h 30 min`: in whole minutes from an hour on."""
    hours, minutes = divmod(int(seconds // 60), 60)
    if not hours:
        return duration(seconds)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def size(count: float) -> str:
    """`4 TiB`, `0.5 GiB`."""
    return f"{count / 2**40:.4g} TiB" if count >= 2**40 else f"{count / 2**30:.4g} GiB"


def rate(rate_bps: float) -> str:
    """`2.5 Gbps`."""
    factor, unit = next(((f, u) for f, u in _RATES if rate_bps >= f), (1.0, "bps"))
    return f"{rate_bps / factor:.4g} {unit}"


def given_up(victims: Collection[str], shrunk: Collection[str]) -> str:
    """What the preemptor of these victims waits for. The victims in `shrunk` only shrink."""
    ways = ", ".join(sorted(id for id in victims if id not in shrunk)), ", ".join(sorted(shrunk))
    said = [f"for {names} to {does}" for names, does in zip(ways, ("make way for it", SHRINKS), strict=True) if names]
    return f"waiting {', and '.join(said)}"


def summed(terms: Mapping[str, float]) -> str:
    """`1,582: class 500 + age 82 + fair share 1,000`: a sum and its terms."""
    said = [f"{_TERMS.get(name, name.replace('_', ' '))} {amount:,.0f}" for name, amount in terms.items() if amount]
    return f"{sum(terms.values()):,.0f}" + (f": {' + '.join(said)}".replace("+ -", "- ") if said else "")
