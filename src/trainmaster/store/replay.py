"""Verifies the hash chain, and the projections against a replay of the log: `tm doctor --replay`.

No decision is made again: the life cycle's `apply` is passed in and only folds the recorded events.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.errors import OperationError
from trainmaster.lifecycle.clock_steps import moved_attempt as moved
from trainmaster.model.checkpoints import Artifact, ArtifactKind
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import ArtifactKept, ClockSet, ClusterConfigured, NodeSeen, NodeStateSet, Noted, Submitted
from trainmaster.model.job import Attempt, Job
from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Moved, Repeated
from trainmaster.model.nodes import Node
from trainmaster.ports.store import ChargeQuery, JobQuery, Note, NoteQuery, Recorded, forgotten
from trainmaster.store.events import GENESIS, ChainRow, Head, chain_hash
from trainmaster.store.projections import labels_of

_PAGE = 1000

ApplyJob = Callable[[Job | None, Recorded], Job]
ApplyNode = Callable[[Node | None, Recorded], Node]
Enter = Callable[[Job | None, Recorded], Sequence[Entry]]


class Chain(Protocol):
    """The log as stored, undecoded."""

    def chain(self, after_seq: int, limit: int, job: str | None = None) -> list[ChainRow]:
        """Rows in order."""
        ...

    def head(self) -> Head:
        """The end of the log."""
        ...


class Projections(Protocol):
    """The part of an event store that a replay is compared with."""

    def events(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded]: ...

    def job(self, job_id: str) -> Job | None: ...

    def jobs(self, query: JobQuery) -> list[Job]: ...

    def over_since(self, count: int) -> tuple[int, list[Job]]: ...

    def attempts(self, job_id: str) -> list[Attempt]: ...

    def artifacts(self, job_id: str, limit: int, after: str = "", kind: ArtifactKind | None = None) -> list[Artifact]: ...

    def children(self, job_id: str) -> list[str]: ...

    def labels(self, job: Job) -> list[tuple[str, str]]: ...

    def notes(self, query: NoteQuery) -> list[Note]: ...

    def charges(self, query: ChargeQuery) -> Iterator[Charge]: ...

    def balances(self) -> tuple[Balance, ...]: ...

    def nodes(self) -> list[Node]: ...

    def rules(self) -> Cluster: ...


def verify_chain(store: Chain) -> list[str]:
    """Describe what is wrong with the log: events changed, missing, or cut off at the end. Empty if it is intact.

    Linear in the log, one page at a time. The chain reveals damage and careless changes; anyone who can write the file can
    also compute a new chain.
    """
    problems: list[str] = []
    seq, last_hash = 0, GENESIS
    head = store.head()
    while seq < head.last_seq:
        page = [row for row in store.chain(seq, _PAGE) if row.seq <= head.last_seq]
        if not page:
            break
        for row in page:
            if row.seq != seq + 1:
                problems.append(f"events {seq + 1} to {row.seq - 1} are missing")
            elif chain_hash(last_hash, row) != row.hash:
                problems.append(f"event {row.seq} was changed (its hash does not match)")
            seq, last_hash = row.seq, row.hash
    if (seq, last_hash) != (head.last_seq, head.last_hash):
        problems.append(f"the log ends at event {seq}, and should end at {head.last_seq} with hash {head.last_hash[:12]}…")
    return problems


def replay(store: Projections, apply: ApplyJob, apply_node: ApplyNode | None = None, enter: Enter | None = None) -> list[str]:
    """Fold the whole log and describe every projection that differs from the result. Empty if all agree.

    `apply` gets None for a job's first event. Nodes are compared if `apply_node` is given, and the ledger if `enter` is: it
    returns an event's ledger entries, given the job after the event (None: not a job's event). Run it while nothing is
    written, or on a copy. Memory: all jobs.
    """
    jobs: dict[str, Job] = {}
    attempts: dict[str, dict[int, Attempt]] = {}
    nodes: dict[str, Node] = {}
    over: list[str] = []
    record, ledger = _Record(), _Ledger()
    for recorded in _all_events(store):
        record.take(recorded)
        if isinstance(recorded.event, Noted):
            continue  # a note changes no job
        if recorded.job is not None:
            before = jobs.get(recorded.job)
            job = apply(before, recorded)
            if job.state.ended and job.ran_s > 0 and before is not None and not before.state.ended:
                over.append(job.id)
            jobs[recorded.job] = job
            if isinstance(recorded.event, ClockSet) and job.id in attempts:
                attempts[job.id] = {n: moved(one, recorded.event.by_s) for n, one in attempts[job.id].items()}
            if job.attempt is not None:
                attempts.setdefault(job.id, {})[job.attempt.number] = job.attempt
        elif apply_node is not None and isinstance(recorded.event, NodeSeen | NodeStateSet):
            name = recorded.event.node.name if isinstance(recorded.event, NodeSeen) else recorded.event.name
            nodes[name] = apply_node(nodes.get(name), recorded)
        if enter is not None:
            ledger.take(enter(None if recorded.job is None else jobs[recorded.job], recorded))
    differences = []
    for job_id, job in jobs.items():
        differences += _compare_job(job, store)
        numbered = sorted(attempts.get(job_id, {}).items())
        differences += _compare(f"attempts of {job_id}", [attempt for _, attempt in numbered], store.attempts(job_id))
        differences += _compare(f"labels of {job_id}", labels_of(job), store.labels(job))
    differences += _unlogged(store, jobs)
    differences += record.differences(store, list(jobs))
    differences += _compare("jobs that are over", over[forgotten(len(over)) :], [job.id for job in store.over_since(0)[1]])
    if enter is not None:
        differences += ledger.differences(store)
    if apply_node is not None:
        differences += _compare("nodes", [nodes[name] for name in sorted(nodes)], store.nodes())
    return differences


@dataclass(slots=True)
class _Record:
    """Artifacts, notes and rules folded from the log. Memory: all of them."""

    artifacts: dict[str, dict[str, Artifact]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)
    rules: Cluster = field(default_factory=Cluster)

    def take(self, recorded: Recorded) -> None:
        """Process one event."""
        if isinstance(recorded.event, ArtifactKept) and recorded.job is not None:
            self.artifacts.setdefault(recorded.job, {})[recorded.event.artifact.path] = recorded.event.artifact
        elif isinstance(recorded.event, Submitted) and recorded.event.lineage is not None and recorded.job is not None:
            self.children.setdefault(recorded.event.lineage.job, []).append(recorded.job)
        elif isinstance(recorded.event, Noted):
            self.notes.append(Note(recorded.seq, recorded.job, recorded.event))
        elif isinstance(recorded.event, ClusterConfigured):
            self.rules = recorded.event.cluster

    def differences(self, store: Projections, jobs: Sequence[str]) -> list[str]:
        """Differences between the projections and the folded log."""
        found = []
        for job_id in jobs:
            mine = sorted(self.artifacts.get(job_id, {}).values(), key=lambda kept: kept.path)
            found += _compare(f"artifacts of {job_id}", mine, list(_all_artifacts(store, job_id)))
            found += _compare(f"children of {job_id}", self.children.get(job_id, []), store.children(job_id))
        found += _compare("rules of the cluster", self.rules, store.rules())
        return found + _compare("notes", self.notes, _all_notes(store))


@dataclass(slots=True)
class _Ledger:
    """The ledger folded from the log. Memory: all of it."""

    charges: dict[tuple[str, int, str], Charge] = field(default_factory=dict)  # by job, attempt, pool
    balances: dict[tuple[str, str], Balance] = field(default_factory=dict)
    of_job: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)

    def take(self, entries: Sequence[Entry]) -> None:
        """Process the entries of one event."""
        for entry in entries:
            match entry:
                case Charge():
                    key = entry.job, entry.attempt, entry.rate.pool
                    self.charges[key] = entry
                    self.of_job.setdefault(entry.job, []).append(key)
                case Balance():
                    self.balances[entry.project, entry.member] = entry
                case Closed() | Repeated() | Moved():
                    for key in self.of_job.get(entry.job, ()):
                        self.charges[key] = _entered(self.charges[key], entry)

    def differences(self, store: Projections) -> list[str]:
        """Differences between the tables and the folded log."""
        stored = {(one.job, one.attempt, one.rate.pool): one for one in store.charges(ChargeQuery())}
        found = []
        for key in sorted({*self.charges, *stored}):
            mine, theirs = self.charges.get(key), stored.get(key)
            what = f"charge of {key[0]}.{key[1]} in {key[2]}"
            found += [f"{what}: the log has no event of it"] if mine is None else _compare(what, mine, theirs)
        balances = tuple(self.balances[member] for member in sorted(self.balances))
        return found + _compare("balances", balances, store.balances())


def _entered(charge: Charge, entry: Closed | Repeated | Moved) -> Charge:
    if isinstance(entry, Moved):
        until_ms, lost_ms = (None if at is None else at + entry.by_ms for at in (charge.until_ms, charge.lost_from_ms))
        return charge._replace(from_ms=charge.from_ms + entry.by_ms, until_ms=until_ms, lost_from_ms=lost_ms)
    if isinstance(entry, Closed):
        return charge._replace(until_ms=entry.until_ms) if charge.attempt == entry.attempt else charge
    if entry.kept < charge.attempt < entry.by:
        return charge._replace(lost_from_ms=charge.from_ms)
    if charge.attempt != entry.kept or (charge.lost_from_ms is not None and charge.lost_from_ms <= entry.at_ms):
        return charge
    return charge._replace(lost_from_ms=entry.at_ms)


def _all_artifacts(store: Projections, job_id: str) -> Iterator[Artifact]:
    after = ""
    while page := store.artifacts(job_id, _PAGE, after):
        yield from page
        after = page[-1].path


def _all_notes(store: Projections) -> list[Note]:
    found: list[Note] = []
    while page := store.notes(NoteQuery(limit=_PAGE, before_seq=found[0].seq if found else None)):
        found = [*page, *found]
    return found


def _all_events(store: Projections) -> Iterator[Recorded]:
    seq = 0
    while page := store.events(seq, _PAGE):
        yield from page
        seq = page[-1].seq


def _unlogged(store: Projections, logged: Mapping[str, Job]) -> list[str]:
    """The jobs that are only in the projection. None are looked for if a row cannot be read, which `_compare_job` reports."""
    found, before = [], None
    with suppress(OperationError):
        while page := store.jobs(JobQuery(limit=_PAGE, before_seq=before)):
            found += [f"job {job.id}: the log has no event of it" for job in page if job.id not in logged]
            before = page[-1].seq
    return found


def _compare_job(job: Job, store: Projections) -> list[str]:
    try:
        return _compare(f"job {job.id}", job, store.job(job.id))
    except OperationError as error:
        return [f"job {job.id}: {error}"]


def _compare(what: str, replayed: object, stored: object) -> list[str]:
    if replayed == stored:
        return []
    if stored is None:
        return [f"{what}: in the log, not in the projection"]
    fields: Sequence[str] = getattr(type(replayed), "__slots__", ())
    pairs = [(name, getattr(replayed, name), getattr(stored, name, None)) for name in fields if name[0] != "_"]
    differing = [(f"{what}: {name}", by_log, in_it) for name, by_log, in_it in pairs if by_log != in_it]
    differing = differing or [(what, replayed, stored)]
    return [f"{name} is {by_log!r} by the log, {in_it!r} in the projection" for name, by_log, in_it in differing]
