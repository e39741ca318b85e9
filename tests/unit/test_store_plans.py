"""Frequent queries read no more of a file than they return, however large it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from trainmaster.model.job import State
from trainmaster.ports.store import ChargeQuery, JobQuery
from trainmaster.store.database import Database
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.testing.metric_store_contract import point
from trainmaster.testing.store_contract import submission

NEWEST_OF_ALL = "SCAN job"  # backwards from the end, up to the limit


def plans(database: Database, ask: Callable[[], object]) -> list[str]:
    """The steps of SQLite's plan for the query of `ask`, without index lookups."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if statement.startswith(("SELECT", "DELETE", "WITH")):
            asked.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    ask()
    event.remove(database.engine, "before_cursor_execute", note)
    assert asked
    steps = []
    with database.reading() as connection:
        for statement, parameters in asked:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps += [row[3] for row in rows if "SCAN" in row[3] or "TEMP B-TREE" in row[3]]
    return [step for step in steps if not step.startswith(("SCAN anon", "SCAN (subquery", "SCAN mark", "SCAN CONSTANT"))]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (JobQuery(), [NEWEST_OF_ALL]),
        (JobQuery(before_seq=9), []),
        (JobQuery(states=(State.FAILED, State.CANCELLED)), []),
        (JobQuery(project="p", states=(State.FAILED,), before_seq=9), []),
        (JobQuery(experiment="e", states=(State.RUNNING,)), []),
    ],
)
def test_a_page_of_jobs(tmp_path: Path, query: JobQuery, expected: list[str]) -> None:
    store = SqlEventStore(tmp_path / "events.db")
    steps = plans(store._database, lambda: store.jobs(query))
    assert [step for step in steps if "SCAN" in step] == expected  # what is sorted is one page of each state
    store.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.job("a-1"),
        lambda store: store.attempts("a-1"),
        lambda store: store.events(7, 10, "a-1"),
        lambda store: store.events(7, 10),
        lambda store: store.live_counts(),
        lambda store: list(store.charges(ChargeQuery(job="a-1"))),
        lambda store: list(store.charges(ChargeQuery(1, 2, "p"))),
    ],
)
def test_one_job(tmp_path: Path, ask: Callable[[SqlEventStore], object]) -> None:
    store = SqlEventStore(tmp_path / "events.db")
    assert plans(store._database, lambda: ask(store)) == []
    store.close()


def test_start_up(tmp_path: Path) -> None:
    store = SqlEventStore(tmp_path / "events.db")
    scans = ["SCAN node USING INDEX sqlite_autoindex_node_1", "SCAN balance"]
    assert plans(store._database, store.load_live) == scans
    store.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda inbox: inbox.accept([submission("k1"), submission("k2", "other")]),
        lambda inbox: inbox.drain(7, 100),
        lambda inbox: inbox.pending(7),
        lambda inbox: inbox.pending(7, "a-1"),
        lambda inbox: inbox.trim(7, 1.0),
    ],
)
def test_the_inbox(tmp_path: Path, ask: Callable[[SqlInbox], object]) -> None:
    inbox = SqlInbox(tmp_path / "inbox.db")
    assert plans(inbox._database, lambda: ask(inbox)) == []
    inbox.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda metrics: metrics.write([point(1, 1.0), point(None, 1.0)], []),
        lambda metrics: metrics.series("digits-1", "loss", 10),
        lambda metrics: metrics.last(["digits-1", "other-1"]),
        lambda metrics: metrics.heartbeats("digits-1", "other-1"),
    ],
)
def test_metrics(tmp_path: Path, ask: Callable[[SqlMetricStore], object]) -> None:
    metrics = SqlMetricStore(tmp_path / "metrics.db")
    metrics.write([point(step, 1.0) for step in range(100)], [])
    assert plans(metrics._database, lambda: ask(metrics)) == []
    metrics.close()
