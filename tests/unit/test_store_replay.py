"""Hash chain and replay: damage and differences are named, and nothing else is."""

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster import troubles
from trainmaster.errors import OperationError
from trainmaster.lifecycle import machine
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.events import (
    ArtifactKept,
    CancelRequested,
    ClusterConfigured,
    Held,
    JobEvent,
    NodeSeen,
    NodeStateSet,
    Noted,
    Released,
    Submitted,
    Waited,
)
from trainmaster.model.job import Job, State
from trainmaster.model.nodes import Node, NodeState
from trainmaster.ports.store import ArtifactTotals, JobQuery, NewEvent, NoteQuery, Recorded
from trainmaster.store.events import GENESIS, SqlEventStore
from trainmaster.store.replay import replay, verify_chain
from trainmaster.testing.cluster_rules_contract import SOME_RULES
from trainmaster.testing.store_contract import some_job, some_node


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlEventStore]:
    store = SqlEventStore(tmp_path / "events.db")
    yield store
    store.close()


def _apply(job: Job | None, recorded: Recorded) -> Job:
    assert recorded.job is not None
    event: JobEvent = recorded.event  # type: ignore[assignment]
    return machine.apply(job, recorded.job, event, recorded.now_s)[0]


def _apply_node(node: Node | None, recorded: Recorded) -> Node:
    if isinstance(recorded.event, NodeSeen):
        return recorded.event.node
    assert isinstance(recorded.event, NodeStateSet)
    assert node is not None
    return replace(node, state=recorded.event.state)


def _live(store: SqlEventStore) -> None:
    jobs: dict[str, Job] = {}
    template = some_job(1)
    submitted = [Submitted(seq, template.spec, template.origin, template.code, 1.0) for seq in (1, 2)]
    history: list[tuple[str, JobEvent]] = [
        ("job-1", submitted[0]), ("job-2", submitted[1]), ("job-1", Held("ada", "later")), ("job-2", Waited("no node")),
        ("job-1", Released("ada")), ("job-2", CancelRequested("ada")),
    ]  # fmt: skip
    for now_s, (job_id, event) in enumerate(history, start=1):
        jobs[job_id] = machine.apply(jobs.get(job_id), job_id, event, float(now_s))[0]
        store.append(float(now_s), [NewEvent(job_id, None, event)], {job_id: jobs[job_id]}, [], 0)
    down = replace(some_node("n1"), state=NodeState.LOST)
    events = (NodeSeen(some_node("n1")), NodeStateSet("n1", NodeState.LOST, "ada"))
    store.append(9.0, [NewEvent(None, None, event) for event in events], {}, [down], 0)


def _damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute(statement)
    raw.close()


def test_the_hash_is_what_the_docs_say(store: SqlEventStore) -> None:
    store.append(1, [NewEvent("job-1", 2, Waited("é")), NewEvent(None, None, Waited(""))], {}, [], 0)
    first = hashlib.sha256((GENESIS + '[1,1.0,"job-1",2,"Waited",{"reason":"é"}]').encode()).hexdigest()
    second = hashlib.sha256((first + '[2,1.0,null,null,"Waited",{"reason":""}]').encode()).hexdigest()
    assert [recorded.hash for recorded in store.events(0, 10)] == [first, second]


def test_a_sound_log(store: SqlEventStore) -> None:
    assert verify_chain(store) == []
    assert replay(store, _apply, _apply_node) == []
    _live(store)
    assert verify_chain(store) == []
    assert replay(store, _apply, _apply_node) == []
    assert replay(store, _apply) == []


def _changed(seq: int) -> list[str]:
    return [f"event {seq} was changed (its hash does not match)"]


@pytest.mark.parametrize(
    ("damage", "problems"),
    [
        ("UPDATE event SET data = replace(data, 'later', 'never') WHERE seq = 3", _changed(3)),
        ("UPDATE event SET now_s = now_s + 0.001 WHERE seq = 2", _changed(2)),
        ("UPDATE event SET job = 'job-2' WHERE seq = 1", _changed(1)),
        ("DELETE FROM event WHERE seq IN (3, 4)", ["events 3 to 4 are missing"]),
        ("DELETE FROM event WHERE seq = 1", ["events 1 to 1 are missing"]),
        ("UPDATE event SET data = 'not even JSON' WHERE seq = 8", _changed(8)),
    ],
)
def test_damage_is_named(store: SqlEventStore, tmp_path: Path, damage: str, problems: list[str]) -> None:
    _live(store)
    _damage(tmp_path / "events.db", damage)
    assert verify_chain(store) == problems


@pytest.mark.parametrize("damage", ["DELETE FROM event WHERE seq > 6", "DELETE FROM event"])
def test_a_log_that_was_cut_off(store: SqlEventStore, tmp_path: Path, damage: str) -> None:
    _live(store)
    _damage(tmp_path / "events.db", damage)
    (problem,) = verify_chain(store)
    assert "should end at 8 with hash" in problem


def test_differences_are_named(store: SqlEventStore) -> None:
    _live(store)
    job = store.job("job-1")
    assert job is not None
    unknown = some_job(7)
    store.append(10.0, [], {job.id: replace(job, state=State.HELD), unknown.id: unknown}, [some_node("n2")], 0)
    differences = replay(store, _apply, _apply_node)
    assert differences[:2] == [
        "job job-1: state is <State.QUEUED: 'queued'> by the log, <State.HELD: 'held'> in the projection",
        "job job-7: the log has no event of it",
    ]
    assert differences[2].startswith("nodes is [Node(name='n1'")
    assert len(differences) == 3


def test_the_order_of_ends_is_compared_too(store: SqlEventStore) -> None:
    """None of these jobs ran: the projection of ended jobs must be empty."""
    _live(store)
    store.append(10.0, [NewEvent("job-9", None, Noted("ada", "words", 1.0, "p"), over=True)], {}, [], 0)
    assert replay(store, _apply) == []  # no such job: nothing is remembered
    store.append(11.0, [NewEvent("job-2", None, Noted("ada", "words", 2.0, "p"), over=True)], {}, [], 0)
    (problem,) = replay(store, _apply)
    assert problem == "jobs that are over is [] by the log, ['job-2'] in the projection"


def test_a_job_without_projection(store: SqlEventStore, tmp_path: Path) -> None:
    _live(store)
    _damage(tmp_path / "events.db", "DELETE FROM job WHERE id = 'job-2'")
    assert replay(store, _apply) == ["job job-2: in the log, not in the projection"]


def test_a_damaged_row_of_an_ended_job_stops_nothing_and_is_named(store: SqlEventStore, tmp_path: Path) -> None:
    """Control did not start: it reads the last ended jobs for its estimates."""
    _live(store)
    jobs = {id: replace(job, state=State.SUCCEEDED) for id in ("job-1", "job-2") if (job := store.job(id)) is not None}
    ends = [NewEvent(id, None, CancelRequested("ada"), over=True) for id in jobs]
    store.append(20.0, ends, jobs, [], 0)
    assert [job.id for job in store.load_live().over] == ["job-1", "job-2"]
    _damage(tmp_path / "events.db", "UPDATE job SET data = '{\"id\":\"job-1\",' || substr(data, 40) WHERE id = 'job-1'")
    assert ([job.id for job in store.load_live().over], store.over_since(0)[0]) == (["job-2"], 2)
    (trouble,) = troubles.own.said()
    assert trouble.text.startswith("the record of a job in the event log cannot be read: it begins with '{\"id\":\"job-1\",")
    with pytest.raises(OperationError, match="cannot be read") as told:
        store.jobs(JobQuery())
    assert told.value.hint == "tm doctor --replay names what is damaged, and tm restore DIR brings back a backup"
    assert [line[:48] for line in replay(store, _apply) if "job-1" in line] == ["job job-1: the record of a job in the event log "]


def test_artifacts_and_notes_are_compared_too(store: SqlEventStore, tmp_path: Path) -> None:
    _live(store)
    kept = [ArtifactKept(1, 0, Artifact(path, digest, 1, 1)) for path, digest in (("b", "1"), ("a", "2"), ("b", "3"))]
    noted = [NewEvent("job-1", None, Noted("ada", "words", 1.0, "p", "e")), NewEvent(None, None, Noted("ada", "more", 2.0, "p"))]
    store.append(10.0, [*(NewEvent("job-9", 1, event) for event in kept), *noted], {}, [], 0)
    assert [(one.path, one.digest) for one in store.artifacts("job-9", 10)] == [("a", "2"), ("b", "3")]
    assert [(note.job, note.noted.text) for note in store.notes(NoteQuery(project="p"))] == [("job-1", "words"), (None, "more")]
    assert [note.noted.text for note in store.notes(NoteQuery(limit=1))] == ["more"]
    assert store.notes(NoteQuery(job="job-2")) == []
    record = [NewEvent("job-2", 1, ArtifactKept(1, 0, Artifact("a", "2", 1, 1)))]
    store.append(11.0, record, {}, [], 0)
    ignoring = {"job-9", "job-2"}

    def fold(job: Job | None, recorded: Recorded) -> Job:
        taken = recorded.job in ignoring and isinstance(recorded.event, ArtifactKept)
        return some_job(9, experiment="job") if taken and job is None else job if taken and job else _apply(job, recorded)

    made_up = ("job job-9", "labels of job-9")  # it was never submitted
    assert [line for line in replay(store, fold) if not line.startswith(made_up)] == []
    _damage(tmp_path / "events.db", "DELETE FROM artifact WHERE job = 'job-2'")
    _damage(tmp_path / "events.db", "DELETE FROM note WHERE job IS NULL")
    found = [line for line in replay(store, fold) if not line.startswith(made_up)]
    assert [line.split(" is ")[0] for line in found] == ["artifacts of job-2", "notes"]


def test_sizes_that_no_disk_has_are_added_up(store: SqlEventStore) -> None:
    """Found by `make fuzz`: an agent reported two artifacts of 2**62 bytes, and every `tm prune` answered 500."""
    huge = [NewEvent("job-1", 1, ArtifactKept(1, 0, Artifact(path, "1", 2**62, 1))) for path in ("a", "b", "c")]
    store.append(10.0, huge, {}, [], 0)
    assert store.artifact_totals("job-1") == ArtifactTotals(3, 2**63 - 1)


def test_the_rules_are_compared_too(store: SqlEventStore, tmp_path: Path) -> None:
    _live(store)
    store.append(10.0, [NewEvent(None, None, ClusterConfigured(rules, "ada")) for rules in SOME_RULES], {}, [], 0)
    assert replay(store, _apply, _apply_node) == []
    _damage(tmp_path / "events.db", "DELETE FROM rules")
    (difference,) = [found for found in replay(store, _apply) if "pools" in found]
    assert difference.startswith("rules of the cluster: pools is (Pool(name='some'")
