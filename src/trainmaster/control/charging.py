"""Ledger entries for events: what an attempt holds and at which price, when it ends, and which work was repeated."""

from collections.abc import Mapping, MutableMapping

from trainmaster.model.cluster import Cluster
from trainmaster.model.events import AttemptEnded, ClockSet, JobEvent, NodeStarted, Placed
from trainmaster.model.job import Job
from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Moved, Payer, Rate, Repeated
from trainmaster.model.nodes import Allocation, Node
from trainmaster.scheduling.model.request import WHOLE, milli
from trainmaster.scheduling.model.usage import Account, Member, charged


def rates(allocation: Allocation, nodes: Mapping[str, Node], rules: Cluster) -> tuple[Rate, ...]:
    """The rate for each pool's part of an allocation, at the current prices.

    A pool with GPUs has a price per GPU; an attempt that holds only CPUs there pays nothing. Other pools have a price per CPU.
    """
    held: dict[str, tuple[int, int]] = {}
    prices: dict[str, float] = {}
    for share in allocation.shares:
        pool = rules.pool_of(share.node, nodes[share.node].pool)
        gpus, cpus = held.get(pool.name, (0, 0))
        held[pool.name] = gpus + milli(share.gpus), cpus + milli(share.cpus)
        prices[pool.name] = float(pool.price)
    found = []
    for name, (gpu_milli, cpu_milli) in sorted(held.items()):
        price = prices[name] if gpu_milli or not _has_gpus(name, nodes, rules) else 0.0
        found.append(Rate(name, gpu_milli, 0 if gpu_milli else cpu_milli, price, rules.currency))
    return tuple(found)


def _has_gpus(pool: str, nodes: Mapping[str, Node], rules: Cluster) -> bool:
    return any(node.devices and rules.pool_of(node.name, node.pool).name == pool for node in nodes.values())


def reconfigured(usage: MutableMapping[Member, Account], before: Cluster, after: Cluster, now_s: float) -> tuple[Entry, ...]:
    """Entries for a change of the cluster rules. A new half-life applies from now on: balances are settled at the old one."""
    if after.half_life_s == before.half_life_s:
        return ()
    at_s = _ms(now_s) / 1000
    for member, account in usage.items():
        usage[member] = Account(account.at(at_s, before.half_life_s), at_s)
    return tuple(Balance(*member, *account) for member, account in sorted(usage.items()))


def clock_set(usage: MutableMapping[Member, Account], by_s: float) -> tuple[Entry, ...]:
    """Entries for a step of the clock. Balances keep their value: their dates move along."""
    for member, account in usage.items():
        usage[member] = Account(account.service, account.at_s + by_s)
    return tuple(Balance(*member, *account) for member, account in sorted(usage.items()))


def entries(
    usage: MutableMapping[Member, Account], rules: Cluster, job: Job, event: JobEvent, now_s: float
) -> tuple[Entry, ...]:
    """Entries for an event. `job` is the job after the event; `usage` is updated."""
    attempt = job.attempt
    if attempt is None or not attempt.rates:
        return ()
    match event:
        case Placed():
            payer = _payer(job)
            charges = tuple(Charge(job.id, attempt.number, payer, rate, _ms(now_s)) for rate in attempt.rates)
            return charges + _repeated(job, attempt.number, attempt.resume[0] if attempt.resume else None)
        case NodeStarted(node_index=0) if attempt.restored not in attempt.resume[:1]:  # the best checkpoint did not restore
            return _repeated(job, attempt.number, attempt.restored)
        case AttemptEnded():
            until_ms = _ms(now_s)
            return Closed(job.id, attempt.number, until_ms), _credit(usage, rules, job, until_ms)
        case ClockSet(by_s):
            return (Moved(job.id, _ms(by_s)),)
        case _:
            return ()


def service_rate(rates: tuple[Rate, ...], cpu_weight: float) -> float:
    """Service per second for fair share: GPUs, or CPUs at their weight if no GPU is held."""
    gpus, cpus = sum(rate.gpu_milli for rate in rates), sum(rate.cpu_milli for rate in rates)
    return (gpus or cpu_weight * cpus) / WHOLE


def _credit(usage: MutableMapping[Member, Account], rules: Cluster, job: Job, until_ms: int) -> Balance:
    assert job.attempt is not None
    payer = _payer(job)
    member = payer.project, payer.member
    span = _ms(job.attempt.placed_s) / 1000, until_ms / 1000
    account = charged(usage.get(member, Account()), service_rate(job.attempt.rates, rules.cpu_weight), span, rules.half_life_s)
    usage[member] = account
    return Balance(*member, *account)


def _repeated(job: Job, number: int, start: str | None) -> tuple[Entry, ...]:
    """Entries for the work of earlier attempts that is lost when this attempt starts from checkpoint `start`.

    An attempt without a restored checkpoint starts over. A job that runs in place is an exception: its program may find its
    own files there.
    """
    anew = Repeated(job.id, number, 0, 0)
    if number == 1:
        return ()
    if start is None:
        return () if job.code.in_place else (anew,)
    if job.lineage is not None and start == job.lineage.inherited:
        return (anew,)
    found = [one for one in job.checkpoints if one.id == start]
    return tuple(Repeated(job.id, number, one.attempt, _ms(one.committed_s)) for one in found)


def _payer(job: Job) -> Payer:
    return Payer(job.spec.project, job.owner, job.spec.work, job.spec.experiment)


def _ms(time_s: float) -> int:
    return round(time_s * 1000)
