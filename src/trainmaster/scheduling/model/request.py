"""The request of an attempt, in integers.

Amounts are integers so that 0.1 + 0.2 fits into 0.3: CPUs, shares of a GPU and other fractions are in thousandths, memory in
bytes. Equal requests are one `Ask` object (`ask_of`), compared by identity: a queue of a hundred thousand jobs has a few dozen
of them, and every result about one is computed once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from trainmaster.model.spec import JobSpec, Resources
from trainmaster.scheduling.model.domains import BOTH, wider

WHOLE = 1000  # thousandths in one
Amounts = tuple[tuple[str, int], ...]  # by name, sorted; never 0


class Shape(NamedTuple):
    """What one node of a gang gives: `gpus` whole devices, and `share` thousandths of another one."""

    gpus: int = 0
    share: int = 0
    kinds: tuple[str, ...] = ()  # of GPU, any of these, sorted; (): any kind
    cpus: int = WHOLE
    memory: int = 0
    counted: Amounts = ()
    pool: str | None = None  # None: any

    @property
    def gpu_milli(self) -> int:
        """GPUs in thousandths, shares included."""
        return self.gpus * WHOLE + self.share

    def takes(self, kind: str) -> bool:
        """Whether it accepts a GPU of this kind."""
        return not self.kinds or kind in self.kinds


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A gang on `nodes` nodes: each gives `each`; the first gives `lead`, which includes the roles, if there are any.

    All nodes are in one domain of the level `within`, such as a rack (`domains`); None: anywhere.
    """

    nodes: int
    each: Shape
    lead: Shape | None = None
    within: str | None = None
    first: Shape = field(init=False, repr=False)  # what the first node gives
    gpu_milli: int = field(init=False, repr=False)  # GPUs of the whole gang, in thousandths

    def __post_init__(self) -> None:
        """Compute the derived fields."""
        first = self.lead or self.each
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "gpu_milli", self.each.gpu_milli * (self.nodes - 1) + first.gpu_milli)


def ask_of(nodes: int, each: Shape, lead: Shape | None = None, within: str | None = None) -> Ask:
    """The one `Ask` of these values."""
    return _one(nodes, each, lead, within)  # the cache would tell explicit defaults from implicit ones


@lru_cache(maxsize=1 << 17)
def _one(nodes: int, each: Shape, lead: Shape | None, within: str | None) -> Ask:
    return Ask(nodes, each, lead, within)


def width_of(ask: Ask) -> float:
    """The GPUs of a request; its CPUs if it asks for no GPU."""
    return (ask.gpu_milli or ask.each.cpus * ask.nodes) / WHOLE


def billed(ask: Ask) -> tuple[int, int]:
    """What an attempt is charged for, in thousandths: its GPUs; its CPUs if it has no GPU."""
    return (ask.gpu_milli, 0) if ask.gpu_milli else (0, ask.each.cpus * (ask.nodes - 1) + ask.first.cpus)


def service_of(ask: Ask, cpu_weight: float) -> float:
    """Service per second: GPUs, or CPUs times `cpu_weight`."""
    gpus, cpus = billed(ask)
    return (gpus + cpu_weight * cpus) / WHOLE


def confined(ask: Ask, level: str | None) -> Ask:
    """The same request in one domain of `level`; None: anywhere."""
    return ask_of(ask.nodes, ask.each, ask.lead, level)


def asked(spec: JobSpec, choice: int = 0, given: int = 0) -> Ask:
    """The request of a spec: of several choices, number `choice`; of an elastic job, for `given` nodes."""
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
    """The part of one node in a request."""
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
    """The other counted resources in thousandths, rates and sizes too, so that one rule holds for all."""
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
    """The wishes of a spec under `placement`, which a job can do without.

    `strategy` chooses nodes in place of the policy's strategy. `prefer` is a level (`domains`): for `prefer_s` seconds in the
    queue the job waits to be in one domain of it, then it takes the narrowest level possible. `group` and `near` are names:
    nodes close to jobs of that group, or to that data, are taken first.
    """

    strategy: str | None = None
    prefer: str | None = None
    prefer_s: float = 0.0
    group: str | None = None
    near: str | None = None

    def levels(self, ask: Ask) -> tuple[str, ...]:
        """The levels to try before the plain request: the preferred one, then wider ones, inside the level of `ask`."""
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
        """The request in one domain of the preferred level."""
        return next((confined(ask, level) for level in self.levels(ask)), ask)

    def patient(self, since_s: float, now_s: float) -> bool:
        """Whether a job that has been in the queue since `since_s` still waits for its preferred level."""
        return self.prefer is not None and now_s < since_s + self.prefer_s


ANYWHERE = Wish()
