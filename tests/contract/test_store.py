"""The store contract on SQLite, and what only SQLite can be asked: files, failpoints, a disk that is really full."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from trainmaster.engines.local.attempts import Attempts
from trainmaster.errors import DiskFullError, OperationError
from trainmaster.home import Home
from trainmaster.model.commands import CancelJob
from trainmaster.model.events import Waited
from trainmaster.model.ids import AgentKey
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.ports.store import NewEvent, NewRow
from trainmaster.reserve import Reserve
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics import thinning
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.replay import verify_chain
from trainmaster.testing.cluster_rules_contract import ClusterRulesContract
from trainmaster.testing.ended_jobs_contract import EndedJobsContract
from trainmaster.testing.ledger_contract import LedgerContract
from trainmaster.testing.metric_store_contract import MetricStoreContract
from trainmaster.testing.store_contract import EventStoreContract, InboxContract, some_job, submission

Store = SqlEventStore | SqlInbox | SqlMetricStore


@contextmanager
def _full_disk(store: Store) -> Iterator[None]:
    """SQLite's own limit stands for the disk's: the same error from the same places."""
    with store._database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")
    try:
        yield
    finally:
        with store._database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1073741823")


@pytest.fixture
def full_disk() -> Any:
    return _full_disk


def _opener(cls: type[Store], path: Path) -> Iterator[Callable[..., Store]]:
    opened: list[Store] = []

    def open_store(read_only: bool = False) -> Store:
        store = cls(path, read_only)
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def open_events(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    yield from _opener(SqlEventStore, tmp_path / "events.db")


@pytest.fixture
def open_inbox(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    yield from _opener(SqlInbox, tmp_path / "inbox.db")


@pytest.fixture
def open_metrics(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    yield from _opener(SqlMetricStore, tmp_path / "metrics.db")


class TestEvents(EventStoreContract, ClusterRulesContract, EndedJobsContract):
    pass


class TestLedger(LedgerContract):
    pass


class TestInbox(InboxContract):
    pass


class TestMetrics(MetricStoreContract):
    pass


def test_a_flipped_byte_shows(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = SqlEventStore(path)
    store.append(1.0, [NewEvent("job-1", None, Waited(f"reason {n}")) for n in range(50)], {}, [], 0)
    assert verify_chain(store) == []
    store.close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    content = path.read_bytes()
    assert content.count(b"reason 30") == 1
    path.write_bytes(content.replace(b"reason 30", b"reason 31"))
    store = SqlEventStore(path, read_only=True)
    assert verify_chain(store) == ["event 31 was changed (its hash does not match)"]
    store.close()


def test_absent_damaged_and_newer_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="unable to open"):
        SqlEventStore(tmp_path / "absent.db", read_only=True)
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "noise.db").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(OperationError, match="not a database"):
        SqlInbox(tmp_path / "noise.db")
    SqlMetricStore(tmp_path / "metrics.db").close()
    with sqlite3.connect(tmp_path / "metrics.db") as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    with pytest.raises(OperationError, match="newer version"):
        SqlMetricStore(tmp_path / "metrics.db")


_DIES = """
import sys
from pathlib import Path
from trainmaster.model.events import Waited
from trainmaster.ports.store import NewEvent
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.testing.store_contract import some_job, submission
events, inbox = SqlEventStore(Path(sys.argv[1]) / "events.db"), SqlInbox(Path(sys.argv[1]) / "inbox.db")
for n in (1, 2, 3):
    inbox.accept([submission(f"k{n}")])
    events.append(float(n), [NewEvent(None, None, Waited(str(n)))], {f"job-{n}": some_job(n)}, [], n)
"""


@pytest.mark.parametrize(
    ("point", "accepted", "appended"),
    [("inbox.commit.before", 1, 1), ("inbox.commit.after", 2, 1), ("event.commit.before", 2, 1), ("event.commit.after", 2, 2)],
)
def test_dying_at_a_commit(tmp_path: Path, point: str, accepted: int, appended: int) -> None:
    environment = {**os.environ, "TRAINMASTER_FAILPOINT": f"{point}:2"}
    died = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], env=environment, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    inbox, events = SqlInbox(tmp_path / "inbox.db"), SqlEventStore(tmp_path / "events.db")
    assert [row.key for row in inbox.drain(0, 10)] == [f"k{n}" for n in range(1, accepted + 1)]
    live = events.load_live()
    assert (live.jobs, live.last_seq) == (tuple(some_job(n) for n in range(1, appended + 1)), appended)
    assert verify_chain(events) == []
    assert inbox.accept([submission("k2"), submission("k3")]) == ["digits-2", "digits-3"]
    inbox.close()
    events.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place, mount = tmp_path / "disk", shutil.which("mount")
    place.mkdir()
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting takes root")
    command = [mount, "-t", "tmpfs", "-o", "size=1m,nr_inodes=3000", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _until(error: type[Exception], act: Callable[[int], object]) -> None:
    def repeat() -> None:
        for n in range(1, 10_000):
            act(n)

    with pytest.raises(error):
        repeat()


def test_on_a_full_disk_there_is_room_for_what_ends_something(small_disk: Path) -> None:
    """R18: a job can be cancelled, its agent told to stop, and its end recorded; what is new is refused as before."""
    home = Home(small_disk)
    reserve = Reserve(home, 256 * 1024)
    inbox, events = SqlInbox(home.inbox_db, release=reserve.release), SqlEventStore(home.events_db, release=reserve.release)
    key = AgentKey("digits-1", 1, 0)
    assert inbox.accept([submission("k0")]) == ["digits-1"]
    (home.root / "attempts").mkdir()
    assert not reserve.keep().short
    with (small_disk / "ballast").open("wb", buffering=0) as file:
        _until(OSError, lambda _: file.write(bytes(4096)))
    _until(DiskFullError, lambda n: inbox.accept([submission(f"k{n}")]))
    assert reserve.keep().reserved_bytes == 256 * 1024  # a submit does not get it
    with pytest.raises(DiskFullError):
        inbox.accept([submission("more"), NewRow("both", CancelJob("digits-1", "ann"), 1.0)])
    reason = "x" * 20_000  # more than is left in the files
    assert inbox.accept([NewRow("cancel", CancelJob("digits-1", "ann", reason), 1.0)]) == ["digits-1"]
    found = reserve.keep()
    assert (found.reserved_bytes, found.short) == (0, True)
    assert events.append(1.0, [NewEvent(None, None, Waited(reason))], {}, [], 1) == 1
    Attempts(home).order_stop(key, 0.0)
    assert Attempts(home).tombstone(key) is not None
    (small_disk / "ballast").unlink()
    assert not reserve.keep().short
    inbox.close()
    events.close()


def test_a_disk_that_takes_no_more_files_is_called_so(small_disk: Path) -> None:
    """It was called full, with all its bytes free."""
    files = 0
    with suppress(OSError):
        while files < 100_000:
            (small_disk / str(files)).touch()
            files += 1
    with pytest.raises(DiskFullError, match="no more files can be made beside") as told:
        SqlInbox(small_disk / "inbox.db")
    assert told.value.hint.startswith("remove some files")


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    events, inbox = SqlEventStore(small_disk / "events.db"), SqlInbox(small_disk / "inbox.db")
    assert inbox.accept([submission("k0")]) == ["digits-1"]
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        _until(OSError, lambda _: file.write(bytes(4096)))
    accepted: list[str] = []
    _until(DiskFullError, lambda n: accepted.extend(inbox.accept([submission(f"k{n}")])))
    _until(DiskFullError, lambda n: events.append(1.0, [NewEvent(None, None, Waited("x" * 1000))], {}, [], n))
    assert [row.job for row in inbox.drain(0, 10_000)] == ["digits-1", *accepted]
    with pytest.raises(DiskFullError):
        SqlMetricStore(small_disk / "metrics.db")
    ballast.unlink()
    assert inbox.accept([submission("after")]) == [f"digits-{len(accepted) + 2}"]
    last_seq = events.load_live().last_seq
    assert events.append(2.0, [NewEvent(None, None, Waited("after"))], {}, [], 0) == last_seq + 1
    assert verify_chain(events) == []
    metrics = SqlMetricStore(small_disk / "metrics.db")
    assert metrics.last(["digits-1"]) == {}
    for store in (events, inbox, metrics):
        store.close()


def test_what_is_removed_of_the_metrics_is_given_back_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file never shrank, whatever was removed from it."""
    monkeypatch.setattr(thinning, "_PAGES", 20)
    metrics = SqlMetricStore(tmp_path / "metrics.db")
    metrics.write([MetricPoint("gone-1", 1, 0, step, "loss", 1.0, 1.0) for step in range(10_000)], [])
    metrics.write([MetricPoint("digits-1", 1, 0, 1, "loss", 1.0, 1.0)], [])

    def pages() -> int:
        with metrics._database.reading() as connection:
            return int(connection.exec_driver_sql("PRAGMA page_count").scalar() or 0)

    full = pages()
    assert not metrics.shrink(), "nothing was removed"
    assert metrics.thin("gone-1", 0) == 10_000
    steps = 1
    while metrics.shrink():
        steps += 1
    assert steps > 2
    assert pages() < full // 2
    assert metrics.series("digits-1", "loss") == [(1, 1.0)]
    metrics.close()


def test_no_number_of_a_point_is_given_out_twice_though_the_newest_were_removed(tmp_path: Path) -> None:
    """A mirror goes on behind the number that it saw last: it passed over the points of the next job."""
    metrics, feed = SqlMetricStore(tmp_path / "metrics.db"), SqlFeed(tmp_path / "metrics.db")
    metrics.write([MetricPoint("gone-1", 1, 0, step, "loss", 1.0, 1.0) for step in range(10)], [])
    seen = feed.last_seq()
    metrics.thin("gone-1", 0)
    assert (feed.last_seq(), feed.since(0, 100).points) == (seen, ())
    metrics.write([MetricPoint("digits-1", 1, 0, None, "loss", 2.0, 1.0)], [])
    assert [(point.job, point.value) for point in feed.since(seen, 100).points] == [("digits-1", 2.0)]
    feed.close()
    metrics.close()
