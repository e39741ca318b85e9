"""Lists of jobs by owner, name, tag and time: what is listed, what it costs, and that labels follow the log."""

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from test_store_plans import NEWEST_OF_ALL, plans

from trainmaster.lifecycle import machine
from trainmaster.model.events import JobEvent, Submitted, Updated
from trainmaster.model.job import Job, State
from trainmaster.model.redaction import HIDDEN
from trainmaster.ports.store import JobQuery, NewEvent, Recorded
from trainmaster.server.views.lookup import admits
from trainmaster.store.codec import dump
from trainmaster.store.database import open_engine
from trainmaster.store.events import SqlEventStore
from trainmaster.store.replay import replay
from trainmaster.store.upgrade import upgrade
from trainmaster.testing.store_contract import some_job, submit_all


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlEventStore]:
    store = SqlEventStore(tmp_path / "events.db")
    yield store
    store.close()


def a_job(seq: int, state: State = State.QUEUED, owner: str = "ada", tags: dict[str, str] | None = None, **changes: object) -> Job:
    """A job that was accepted at 10 s for each number."""
    job = some_job(seq, state, member=owner, created_s=10.0 * seq, **changes)
    return replace(job, spec=replace(job.spec, tags=tags or {}))


def many() -> list[Job]:
    """Every combination of a few values, in a shuffled order."""
    kinds = list(product(("ada", "ben"), (State.QUEUED, State.FAILED), ("digits", "digits-2", "cats"), ("p", "q"), (0, 1, 2)))
    random.Random(5).shuffle(kinds)
    tags = ({}, {"owner": "team-a"}, {"owner": "team-b", "kind": "x=y"})
    return [
        a_job(seq, state, owner, dict(tags[tag]), name=name, project=project)
        for seq, (owner, state, name, project, tag) in enumerate(kinds, 1)
    ]


QUERIES = [
    {"owner": "ada"}, {"owner": "nobody"}, {"name": "digits"}, {"name": "digits*"}, {"name": "*"}, {"tags": (("owner", "team-a"),)},
    {"tags": (("owner", None),)}, {"tags": (("owner", "team-b"), ("kind", "x=y"))}, {"tags": (("kind", None), ("owner", "team-a"))},
    {"since_s": 300.0}, {"until_s": 300.0}, {"since_s": 105.0, "until_s": 305.0}, {"since_s": 1e9}, {"until_s": 1.0},
]  # fmt: skip
MORE = [{}, {"states": (State.FAILED,)}, {"project": "q", "states": (State.FAILED, State.QUEUED)}, {"since_s": 200.0, "owner": "ben"}]


def test_what_is_listed_is_what_the_query_admits(store: SqlEventStore) -> None:
    jobs = many()
    submit_all(store, jobs)
    for one, more in product(QUERIES, MORE):
        query = JobQuery(**{"limit": 7, **more, **one})  # type: ignore[arg-type]
        wanted = [job for job in reversed(jobs) if admits(query, job)]
        assert store.jobs(query) == wanted[:7], query
        if len(wanted) > 7:
            assert store.jobs(replace(query, before_seq=wanted[6].seq)) == wanted[7:14], query


@pytest.mark.parametrize(
    ("query", "scans"),
    [
        (JobQuery(owner="ada"), []),
        (JobQuery(owner="ada", states=(State.FAILED,), project="p"), []),
        (JobQuery(tags=(("owner", "a"), ("kind", None)), before_seq=9), []),
        (JobQuery(name="digits", states=(State.FAILED,)), []),
        (JobQuery(since_s=5.0, states=(State.FAILED,)), []),
        (JobQuery(since_s=5.0, until_s=9.0), []),
    ],
)
def test_lists_are_read_from_an_index(store: SqlEventStore, query: JobQuery, scans: list[str]) -> None:
    steps = plans(store._database, lambda: store.jobs(query))
    assert [step for step in steps if step.startswith("SCAN") and step != NEWEST_OF_ALL] == scans
    assert [step for step in steps if step == NEWEST_OF_ALL] == []


def test_a_list_of_a_tag_or_owner_reads_what_it_answers(tmp_path: Path) -> None:
    """In steps of SQLite's virtual machine: 40 times as many jobs cost hardly more."""
    costs = {}
    for count in (100, 4000):
        path = tmp_path / f"{count}.db"
        store = SqlEventStore(path)
        submit_all(store, [a_job(seq, tags={"n": str(seq % 20)}) for seq in range(1, count + 1)])
        found = []
        for query in (JobQuery(owner="ada", limit=5), JobQuery(tags=(("n", "3"),), limit=5), JobQuery(since_s=70.0, until_s=90.0)):
            found.append(_steps(store, query))
        costs[count] = found
        store.close()
    assert all(many <= few * 2 + 2000 for few, many in zip(costs[100], costs[4000], strict=True)), costs


def _steps(store: SqlEventStore, query: JobQuery) -> int:
    """Virtual machine instructions, in hundreds, of a page."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    store.jobs(query)
    with store._database.reading() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_progress_handler(count, 100)
    assert store.jobs(query)
    raw.set_progress_handler(None, 0)
    return counted * 100


def _apply(job: Job | None, recorded: Recorded) -> Job:
    event: JobEvent = recorded.event  # type: ignore[assignment]
    return machine.apply(job, str(recorded.job), event, recorded.now_s)[0]


def test_labels_follow_the_log_and_hide_credentials(store: SqlEventStore) -> None:
    template = a_job(1, tags={"owner": "team-a", "api_key": "s3cret"})
    history: list[JobEvent] = [
        Submitted(1, template.spec, template.origin, template.code, 10.0, member="ada"),
        Updated("ada", tags={"owner": "team-b", "api_key": None, "kind": "x"}),
    ]
    job, labels = None, []
    for event in history:
        job = machine.apply(job, "job-1", event, 10.0)[0]
        store.append(10.0, [NewEvent("job-1", None, event)], {"job-1": job}, [], 0)
        labels.append(store.labels(job))
    assert labels == [
        [("owner", "ada"), ("tag:api_key", HIDDEN), ("tag:owner", "team-a")],
        [("owner", "ada"), ("tag:kind", "x"), ("tag:owner", "team-b")],
    ]
    assert replay(store, _apply) == []
    assert [job.id for job in store.jobs(JobQuery(tags=(("owner", "team-b"),)))] == ["job-1"]
    assert store.jobs(JobQuery(tags=(("owner", "team-a"),))) == []
    with store._database.writing("test") as connection:
        connection.exec_driver_sql("DELETE FROM label WHERE name = 'tag:kind'")
    assert "labels of job-1" in replay(store, _apply)[0]


def test_jobs_of_an_older_version_are_found_after_its_migration(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    engine = open_engine(path)
    upgrade("events", engine, "0009")
    jobs = [a_job(1, tags={"owner": "team-a"}), a_job(2, owner=""), a_job(3, owner="ben", tags={"token": "hf_0123456789abcdefgh"})]
    with sqlite3.connect(path) as raw:
        for job in jobs:
            values = (job.seq, job.id, job.seq, "p", "job", "job", job.state.value, 1, dump(job))
            raw.execute(f"INSERT INTO job (seq, id, number, project, experiment, name, state, live, data) VALUES (?{',?' * 8})", values)
    raw.close()
    upgrade("events", engine)
    engine.dispose()
    store = SqlEventStore(path)
    assert [store.labels(job) for job in jobs] == [
        [("owner", "ada"), ("tag:owner", "team-a")], [("owner", jobs[1].owner)], [("owner", "ben"), ("tag:token", HIDDEN)],
    ]  # fmt: skip
    assert store.jobs(JobQuery(tags=(("owner", "team-a"),))) == [jobs[0]]
    store.close()
