"""Laws of a finished history, checked against its log, its projections and the truth of its machines."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from trainmaster.compose import ledger_fold
from trainmaster.control.replan import folded, replan
from trainmaster.control.world import World
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.lifecycle.machine import apply
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import ArtifactKept, CheckpointStaged, NodeStateSet, NotKept, Warned
from trainmaster.model.job import Job, State
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import NodeState
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.store import JobQuery, Recorded
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.store.codec import load_event
from trainmaster.store.events import SqlEventStore
from trainmaster.store.replay import replay, verify_chain
from trainmaster.testing.histories.job_laws import life_problems
from trainmaster.testing.ledger_law import ledger_problems

_ALL = 1_000_000
_TOLD = ("CheckpointStaged", "ArtifactKept", "NotKept", "Warned")
Told = tuple[str, str, int]  # job, subject, node index


def log_problems(
    events: SqlEventStore, engine: SimulatedEngine, world: World, choose: Callable[[Cluster], Policy]
) -> list[str]:
    """Violations in the log, its projections, and the orders to agents."""
    fresh = World.of(events.load_live())
    found = [*engine.truth.violations, *verify_chain(events)]
    found += [*replay(events, _fold, enter=ledger_fold()), *ledger_problems(events)]
    planned = replan(events.events(0, _ALL), choose)
    found += [f"plan {one.seq}: {one.recorded ^ one.decided}" for one in planned if one.recorded != one.decided]
    found += [f"{key} was started {n} times" for key, n in engine.truth.starts.items() if n > 1]
    if fresh != world:
        found.append("the world in memory differs from a fresh load")
    if fresh.past != folded(events.events(0, _ALL)).past:
        found.append("what is remembered of jobs that are over is not what the events say")
    return found + life_problems(events.events(0, _ALL), engine.truth)


def job_problems(events: SqlEventStore, engine: SimulatedEngine, submitted: list[str], removed: set[str]) -> list[str]:
    """Violations in jobs: lost or invented jobs, lost or duplicated reports, missing bytes. `removed` are names of blobs."""
    jobs = events.jobs(JobQuery(limit=10_000))
    found = [f"{id} never ended" for id in unfinished(events, submitted)]
    if sorted(job.id for job in jobs) != sorted(submitted):
        found.append("the accepted jobs are not the jobs on record")
    told, recorded = Counter(_told(engine, surely=True)), Counter(_recorded(events))
    found += [f"{what} was told and not recorded" for what in told - recorded]
    found += [f"{what} was recorded more often than told" for what in recorded - Counter(_told(engine))]
    for job in jobs:
        known = {artifact.path for artifact in events.artifacts(job.id, 10_000)}
        found += _bytes_problems(job, {what for name, what, _ in told if name == job.id} - known, removed)
    return found + [f"{j.id} succeeded without a clean end" for j in jobs if j.state is State.SUCCEEDED and not _earned(j)]


def fork_problems(events: SqlEventStore, forks: Mapping[str, Lineage]) -> list[str]:
    """Forks whose recorded lineage differs from the request, with the job and its parent."""
    return [f"{id} lost its lineage" for id, asked in forks.items() if _lineage_of(events, id) != asked]


def part_name(job: str, checkpoint: str, node_index: int) -> str:
    """The blobs of one part of a checkpoint."""
    return f"checkpoints/{job}/{checkpoint}/n{node_index}/x"


def unstored(events: SqlEventStore, blobs: Blobs) -> list[str]:
    """Recorded checkpoints whose bytes are not in the store."""
    kept = [(job.id, one) for job in events.jobs(JobQuery(limit=10_000)) for one in job.checkpoints]
    names = [part_name(job, one.id, part.node_index) for job, one in kept for part in one.parts]
    found = zip(names, blobs.exists(names), strict=True)
    return [f"{name} is on record, and not in the store" for name, there in found if not there]


def unheeded(events: SqlEventStore, declared: list[str]) -> list[str]:
    """Nodes that a person declared lost, without a record in the log."""
    said = [row.event for row in events.events(0, _ALL) if isinstance(row.event, NodeStateSet)]
    lost = Counter(event.name for event in said if event.state is NodeState.LOST)
    return [f"{node} was declared lost, and the log does not say so" for node in Counter(declared) - lost]


def unfinished(events: SqlEventStore, accepted: list[str]) -> list[str]:
    """Accepted jobs that are not over."""
    return [id for id in accepted if (job := events.job(id)) is None or not job.state.ended]


def _lineage_of(events: SqlEventStore, job_id: str) -> Lineage | None:
    job = events.job(job_id)
    lineage = job.lineage if job is not None else None
    return lineage if lineage is not None and job_id in events.children(lineage.job) else None


def _told(engine: SimulatedEngine, surely: bool = False) -> Iterator[Told]:
    """Every checkpoint part, artifact and warning that an agent reported."""
    for key, report in engine.told(surely):
        yield key.job, str(report.get("id") or report.get("path") or report.get("name") or report.get("topic")), key.node_index


def _recorded(events: SqlEventStore) -> Iterator[Told]:
    """The same for those that became events."""
    for row in events.chain(0, _ALL):
        match load_event(row.type, row.data) if row.type in _TOLD else None:
            case CheckpointStaged(id=id, part=part):
                yield row.job or "", id, part.node_index
            case ArtifactKept(node_index=node_index, artifact=artifact):
                yield row.job or "", artifact.path, node_index
            case NotKept(node_index=node_index, name=name):
                yield row.job or "", name, node_index
            case Warned(node_index=node_index, topic=topic) if node_index >= 0:
                yield row.job or "", topic, node_index


def _bytes_problems(job: Job, told: set[str], removed: set[str]) -> list[str]:
    """Laws of retention: kept bytes exist, given up bytes do not, and nothing is forgotten."""
    gone = {name.rpartition("/")[2] for name in removed if name.startswith(f"checkpoints/{job.id}/")}
    kept = {checkpoint.id for checkpoint in job.checkpoints}
    staged = {what for what in told if not what.startswith("trouble")}
    found = [f"{job.id} keeps {id}, which was removed" for id in kept & gone]
    found += [f"{job.id} neither keeps nor removed {id}" for id in staged - kept - gone]
    return found + [f"{job.id} still deletes {what}" for what in (*job.deleting, *job.clearing)]


def _earned(job: Job) -> bool:
    return job.attempt is not None and all(n.outcome is not None and n.outcome.clean for n in job.attempt.nodes)


def _fold(job: Job | None, recorded: Recorded) -> Job:
    return apply(job, recorded.job or "", recorded.event, recorded.now_s)[0]  # type: ignore[arg-type]
