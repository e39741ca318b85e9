"""What one attempt asks for, as the scheduler looks at it: so much of every node, and more of the first where roles run."""

from dataclasses import replace
from typing import NamedTuple

from trainmaster.model.spec import Counts, JobSpec, Resources, counts


class Request(NamedTuple):
    """`each` of every node of the gang; of the first one `lead`, which is more than that by what the roles take.

    Hashable: a request that did not fit is looked up by it.
    """

    each: Resources
    lead: Resources | None = None  # None: there are no roles

    @property
    def first(self) -> Resources:
        """What the first node must have."""
        return self.lead or self.each


def requested(spec: JobSpec) -> Request:
    """The request of a spec."""
    if not spec.roles:
        return Request(spec.resources)
    lead = spec.resources
    for name in sorted(spec.roles):
        lead = _together(lead, spec.roles[name].resources)
    return Request(spec.resources, lead)


def _together(ranks: Resources, role: Resources) -> Resources:
    memory_bytes = (ranks.memory_bytes or 0) + (role.memory_bytes or 0)
    return replace(
        ranks,
        gpus=ranks.gpus + role.gpus,
        gpu_kind=ranks.gpu_kind or role.gpu_kind,
        cpus=ranks.cpus + role.cpus,
        memory_bytes=memory_bytes or None,
        disk_bytes=ranks.disk_bytes + role.disk_bytes,
        network_bps=ranks.network_bps + role.network_bps,
        accelerators=_sum(ranks.accelerators, role.accelerators),
        custom=_sum(ranks.custom, role.custom),
    )


def _sum(one: Counts, other: Counts) -> Counts:
    total = dict(one)
    for name, amount in other:
        total[name] = total.get(name, 0) + amount
    return counts(total)
