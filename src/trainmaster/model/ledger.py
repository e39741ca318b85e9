"""The ledger: what each attempt is charged, in whole numbers, so that every sum is exact.

Amounts are in thousandths of a device, times in milliseconds, so that what is charged comes in microseconds of one device.
Money is not kept: it is worked out from the price that held when the attempt was placed.
"""

from dataclasses import dataclass
from typing import NamedTuple

US_PER_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """What an attempt holds of one pool's nodes: GPUs, or CPUs where it holds no GPU there."""

    pool: str
    gpu_milli: int = 0
    cpu_milli: int = 0
    price: float = 0.0  # per GPU and hour, or per CPU and hour
    currency: str = "USD"


class Payer(NamedTuple):
    """Whom an attempt is charged to."""

    project: str
    member: str
    work: str  # the workload class
    experiment: str


class Charge(NamedTuple):
    """What one attempt is charged for one pool, from its placement until its nodes are free again.

    `lost_from_ms` is when the work began that a later attempt did again; None: nothing that is known of.
    """

    job: str
    attempt: int
    payer: Payer
    rate: Rate
    from_ms: int  # since the epoch
    until_ms: int | None = None  # None: it runs
    lost_from_ms: int | None = None

    def us(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        """(GPU, CPU) in microseconds of one device: the part that falls into a period; of one that runs, up to its end."""
        began, ended = max(self.from_ms, from_ms), until_ms if self.until_ms is None else min(self.until_ms, until_ms)
        span_ms = max(0, ended - began)
        return self.rate.gpu_milli * span_ms, self.rate.cpu_milli * span_ms

    def lost_us(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        """The part of it that was done again."""
        if self.lost_from_ms is None:
            return 0, 0
        return self.us(max(self.lost_from_ms, from_ms), until_ms)


class Closed(NamedTuple):
    """An attempt's nodes are free again."""

    job: str
    attempt: int
    until_ms: int


class Repeated(NamedTuple):
    """Attempt `by` goes on from where attempt `kept` was at `at_ms`; 0: from the beginning. What came after is done again."""

    job: str
    by: int
    kept: int
    at_ms: int


class Balance(NamedTuple):
    """What is left at `at_s` of all service that a member of a project has had (`scheduling.share`)."""

    project: str
    member: str
    service: float  # GPU-seconds; CPU-seconds of what held no GPU
    at_s: float


class Moved(NamedTuple):
    """The clock was set: all times of a job's charges move along, and what they amount to stays."""

    job: str
    by_ms: int


Entry = Charge | Closed | Repeated | Balance | Moved
