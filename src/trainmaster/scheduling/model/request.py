"""What one attempt asks for, in whole numbers, as the scheduler looks at it.

Amounts are integers so that 0.1 + 0.2 fits into 0.3: CPUs, shares of a GPU and what else is counted by fractions are in
thousandths, memory and disk in bytes. An `Ask` is one object for equal requests (`ask_of`), and known by that object: a queue
of a hundred thousand jobs has a few dozen of them, and everything that is found out about one is found out once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from trainmaster.model.spec import JobSpec, Resources
from trainmaster.scheduling.model.domains import BOTH, wider

WHOLE = 1000  # thousandths in one
Amounts = tuple[tuple[str, int], ...]  # by name, sorted; never of nothing


class Shape(NamedTuple):
    """What one node of a gang gives. `gpus` are whole devices; `share` thousandths of a single one, then `gpus` is 0."""

    gpus: int = 0
    share: int = 0
    kinds: tuple[str, ...] = ()  # of GPU, any of these, sorted; (): any at all
    cpus: int = WHOLE
    memory: int = 0
    counted: Amounts = ()
    pool: str | None = None  # None: any

    @property
    def gpu_milli(self) -> int:
        """GPUs in thousandths, shares included."""
        return self.gpus * WHOLE + self.share

    def takes(self, kind: str) -> bool:
        """Whether a GPU of this kind will do."""
        return not self.kinds or kind in self.kinds


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """`each` of every one of `nodes` nodes; of the first one `lead`, which is more than that by what the roles take.

    All of them are in one domain of the level `within` (a rack, say: `domains`); None: wherever they are.
    """

    nodes: int
    each: Shape
    lead: Shape | None = None
    within: str | None = None
    first: Shape = field(init=False, repr=False)  # what the first node must have
    gpu_milli: int = field(init=False, repr=False)  # GPUs of the whole gang, in thousandths

    def __post_init__(self) -> None:
        """What everybody asks for all the time."""
        first = self.lead or self.each
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "gpu_milli", self.each.gpu_milli * (self.nodes - 1) + first.gpu_milli)


def ask_of(nodes: int, each: Shape, lead: Shape | None = None, within: str | None = None) -> Ask:
    """The one `Ask` of these values."""
    return _one(nodes, each, lead, within)  # the cache tells defaults that are said from those that are not


@lru_cache(maxsize=1 << 17)
def _one(nodes: int, each: Shape, lead: Shape | None, within: str | None) -> Ask:
    return Ask(nodes, each, lead, within)


def width_of(ask: Ask) -> float:
    """GPUs of a request, or CPUs where it asks for none."""
    return (ask.gpu_milli or ask.each.cpus * ask.nodes) / WHOLE


def billed(ask: Ask) -> tuple[int, int]:
    """What an attempt is charged for, in thousandths: its GPUs, or its CPUs where it has no GPU."""
    return (ask.gpu_milli, 0) if ask.gpu_milli else (0, ask.each.cpus * (ask.nodes - 1) + ask.first.cpus)


def service_of(ask: Ask, cpu_weight: float) -> float:
    """Service per second: GPUs, or CPUs of which each counts so much."""
    gpus, cpus = billed(ask)
    return (gpus + cpu_weight * cpus) / WHOLE


def confined(ask: Ask, level: str | None) -> Ask:
    """The same, all of it in one domain of `level`; None: wherever it is."""
    return ask_of(ask.nodes, ask.each, ask.lead, level)


def asked(spec: JobSpec, choice: int = 0, given: int = 0) -> Ask:
    """The request of a spec; of several choices the one of that number; of an elastic one, for so many nodes as are `given`."""
    resources = spec.resources
    each, nodes = shape(resources.chosen(choice), spec.placement.pool), given if resources.nodes_max else resources.nodes
    nodes = nodes or resources.nodes
    within = spec.placement.within if max(resources.nodes, resources.nodes_max) > 1 else None
    if not spec.roles:
        return ask_of(nodes, each, None, within)
    lead = each
    for name in sorted(spec.roles):
        lead = _together(lead, shape(spec.roles[name].resources, each.pool))
    return ask_of(nodes, each, lead, within)


@lru_cache(maxsize=1 << 12)
def shape(resources: Resources, pool: str | None = None) -> Shape:
    """One node's part of a request."""
    # `Resources` leaves rare fields out of its hash, not out of its equality: the cache tells them apart.
    return Shape(
        resources.gpus,
        milli(resources.gpu_share),
        (resources.gpu_kind,) if resources.devices and resources.gpu_kind else (),
        milli(resources.cpus),
        resources.memory_bytes or 0,
        amounts(dict(resources.counted)),
        pool,
    )


def milli(amount: float) -> int:
    """An amount in thousandths."""
    return round(amount * WHOLE)


def amounts(counted: Mapping[str, float]) -> Amounts:
    """What is counted besides, in thousandths; rates and sizes too, so that one rule holds for all."""
    return tuple(sorted((name, milli(amount)) for name, amount in counted.items() if amount))


def _together(ranks: Shape, role: Shape) -> Shape:
    counted = dict(ranks.counted)
    for name, amount in role.counted:
        counted[name] = counted.get(name, 0) + amount
    return Shape(
        ranks.gpus + role.gpus,
        ranks.share + role.share,
        ranks.kinds or role.kinds,
        ranks.cpus + role.cpus,
        ranks.memory + role.memory,
        tuple(sorted(counted.items())),
        ranks.pool,
    )


class Wish(NamedTuple):
    """What a spec says under `placement` that a job can do without.

    `strategy` is how nodes are chosen, in place of the policy's own way. `prefer` is a level (`domains`) in one domain of which
    it would be: for `prefer_s` seconds in the queue it waits for that, and then takes the narrowest that there is. `group` and
    `near` are names: nodes close to jobs of that group, or to that data, are taken first.
    """

    strategy: str | None = None
    prefer: str | None = None
    prefer_s: float = 0.0
    group: str | None = None
    near: str | None = None

    def levels(self, ask: Ask) -> tuple[str, ...]:
        """What is to be tried before the request as it is: the level that it prefers, then wider ones; within that of `ask`."""
        if self.prefer is None or ask.nodes == 1:
            return ()
        found = wider(self.prefer)
        if ask.within is None:
            return found
        if BOTH in ask.within:
            return ()
        narrower = found[: found.index(ask.within)] if ask.within in found else found
        return tuple(f"{ask.within}{BOTH}{level}" for level in narrower)

    def best(self, ask: Ask) -> Ask:
        """The request, in one domain of the level that it prefers."""
        return next((confined(ask, level) for level in self.levels(ask)), ask)

    def patient(self, since_s: float, now_s: float) -> bool:
        """Whether one that has been in the queue since then would still wait for that."""
        return self.prefer is not None and now_s < since_s + self.prefer_s


ANYWHERE = Wish()
