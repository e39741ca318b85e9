"""The ledger: what each attempt is charged, in integers, so that every sum is exact.

Amounts are in thousandths of a device and times in milliseconds, so charges are in microseconds of one device. Money is not
stored: it is computed from the price at the time of placement.
"""

from dataclasses import dataclass
from typing import NamedTuple

US_PER_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """What an attempt holds of one pool: GPUs, or CPUs if it holds no GPU there."""

    pool: str
    gpu_milli: int = 0
    cpu_milli: int = 0
    price: float = 0.0  # per GPU and hour, or per CPU and hour
    currency: str = "USD"


class Payer(NamedTuple):
    """The account that an attempt is charged to."""

    project: str
    member: str
    work: str  # the workload class
    experiment: str


class Charge(NamedTuple):
    """The charge of one attempt for one pool, from its placement until its nodes are free.

    `lost_from_ms` is the beginning of the work that a later attempt repeated; None: none is known.
    """

    job: str
    attempt: int
    payer: Payer
    rate: Rate
    from_ms: int  # since the epoch
    until_ms: int | None = None  # None: still running
    lost_from_ms: int | None = None

    def us(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        """(GPU, CPU) in microseconds of one device, for the part within a period. A running attempt counts to its end."""
        began, ended = max(self.from_ms, from_ms), until_ms if self.until_ms is None else min(self.until_ms, until_ms)
        span_ms = max(0, ended - began)
        return self.rate.gpu_milli * span_ms, self.rate.cpu_milli * span_ms

    def lost_us(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        """The repeated part, as in `us`."""
        if self.lost_from_ms is None:
            return 0, 0
        return self.us(max(self.lost_from_ms, from_ms), until_ms)


class Closed(NamedTuple):
    """The nodes of an attempt are free again."""

    job: str
    attempt: int
    until_ms: int


class Repeated(NamedTuple):
    """Attempt `by` resumes from the state of attempt `kept` at `at_ms` (0: from the beginning). Later work is repeated."""

    job: str
    by: int
    kept: int
    at_ms: int


class Balance(NamedTuple):
    """Decayed service of a project's member as of `at_s` (`scheduling.share`)."""

    project: str
    member: str
    service: float  # GPU-seconds; CPU-seconds for work without a GPU
    at_s: float


class Moved(NamedTuple):
    """The clock was set: all times of a job's charges move, and their amounts stay."""

    job: str
    by_ms: int


Entry = Charge | Closed | Repeated | Balance | Moved
