"""Check, online backup and restore of a home; damaged metrics stop nothing else."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from control_server import KEY, Server

from trainmaster import backup as copies
from trainmaster import compose, troubles
from trainmaster.agent.transport.point_file import PointFile
from trainmaster.cli.app import run
from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.observing import Observer
from trainmaster.engines.local.watch import Watcher
from trainmaster.errors import ConflictError, NotFoundError, OperationError
from trainmaster.home import Home
from trainmaster.model.job import State
from trainmaster.ports.engine import Phase
from trainmaster.ports.metric_store import Arrival, MetricPoint
from trainmaster.ports.tracker import Cursor, Mirrored
from trainmaster.server.process.authority import own
from trainmaster.server.runtime.unsent_points import import_points
from trainmaster.store.events import SqlEventStore
from trainmaster.store.file_checks import check_files
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.migrate import migrate, migrate_files
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.store.replay import verify_chain
from trainmaster.testing.tracker_contract import some_run
from trainmaster.wire.names import AGENT, ENV_SDK
from trainmaster.wire.processes import own_identity


def point(step: int) -> MetricPoint:
    return MetricPoint("train-1", 1, 0, step, "loss", 0.5, 1000.0 + step)


def spoil(path: Path) -> None:
    """Random bytes in the middle of a file, its journal folded in before."""
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4 // 4096 * 4096)
        file.write(bytes(range(256)) * (size // 2 // 256))


def spoil_table(path: Path, table: str) -> None:
    """Random bytes in the root page of a table; everything else stays intact."""
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    raw.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(range(256)) * (size // 256))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """A running job with a checkpoint and points; the databases are open."""
    made = Server(Home(tmp_path / "home"))
    made.saved()
    metrics = SqlMetricStore(made.home.metrics_db)
    metrics.write([point(step) for step in range(2000)], [])
    metrics.close()
    made.home.token_file.write_text("secret-token\n")
    made.home.secret_file.write_bytes(b"s" * 32)
    return made


def test_a_copy_of_a_running_server_is_brought_back_on_an_empty_machine(server: Server, tmp_path: Path) -> None:
    """R22: there was no backup."""
    (server.home.blobs / "checkpoints").mkdir(parents=True)
    (server.home.blobs / "checkpoints" / "x").write_bytes(b"weights")
    copied = copies.backup(server.home, tmp_path / "copy", blobs=True)
    assert copied.blobs_bytes == 7
    assert not (tmp_path / "copy" / "secret").exists(), "agents of the lost home are not to be let in"
    other = Home(tmp_path / "other")
    made = copies.restore(other, tmp_path / "copy")
    assert made.live == ("train-1.1",)
    migrate(other)
    server_id, _, epoch = other.identity().partition(".")
    assert server_id == server.home.identity().partition(".")[0]
    assert epoch != server.home.identity().partition(".")[2]
    assert (other.blobs / "checkpoints" / "x").read_bytes() == b"weights"
    assert other.token_file.read_text() == "secret-token\n"
    store = SqlEventStore(other.events_db, read_only=True)
    assert verify_chain(store) == []
    assert store.job("train-1") == server.job()
    store.close()
    assert all(found.ok for found in check_files(other))
    seen = Observer(Attempts(other), Cgroups(other.root), Watcher(lambda: None)).observe([KEY])[KEY]
    assert (seen.phase, seen.evidence) == (Phase.GONE, "the server was restored from a backup since")
    assert Attempts(other).was_used(KEY), "never under this number again"
    again = Server(other)
    again.engine.says = {KEY: seen}
    again.tick()
    again.tick(60.0)
    job = again.job()
    assert job.attempt is not None
    assert (job.state, job.attempt.number, job.attempt.resume) == (State.STARTING, 2, ("0001-5",))


def test_a_backup_says_how_it_is_restored(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINMASTER_HOME", str(server.home.root))
    monkeypatch.chdir(tmp_path)
    assert run(["backup", "a copy"]) == 0
    assert capsys.readouterr().err.endswith(f"to restore it into an empty home: tm restore '{tmp_path}/a copy'\n")


def test_a_job_after_a_restore_has_a_run_of_its_own_and_a_known_one_keeps_its(server: Server, tmp_path: Path) -> None:
    """The lost home's `train-2` had the same run in the trackers, with other params and other points."""
    homes, known = [server.home], [server.job().seq]
    for name in ("second", "third"):
        copies.backup(homes[-1], tmp_path / f"copy for {name}", blobs=False)
        homes.append(Home(tmp_path / name))
        copies.restore(homes[-1], tmp_path / f"copy for {name}")
        again = Server(homes[-1], rows=100 * len(homes))
        again.submit()
        again.tick()
        known.append(again.job(f"train-{len(homes)}").seq)
    first = compose.server_id(homes[0])
    second, third = (home.identity() for home in homes[1:])
    assert [[compose.run_server(home)(seq) for seq in known] for home in homes] == [
        [first, first, first], [first, second, second], [first, second, third],
    ]  # fmt: skip
    assert compose.server_id(homes[2]) == first, "the lock by which the two do not run side by side"


def test_after_a_restore_it_is_not_known_what_trackers_were_told(server: Server, tmp_path: Path) -> None:
    """The lost server had told them that the job was cancelled: they said so while it ran again."""
    migrate_files({"mirror": server.home.mirror_db})
    file, told = MirrorFile(server.home.mirror_db), some_run("train-1")
    settled = Mirrored("over-1", "ref", "url", told, settled=True)
    file.of("mlflow").save(Cursor(points_seq=7), [Mirrored("train-1", "ref", "url", told, {"a": "1"}, "5"), settled])
    file.close()
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    restored = Home(tmp_path / "restored")
    copies.restore(restored, tmp_path / "copy")
    file = MirrorFile(restored.mirror_db)
    assert file.of("mlflow").run("train-1") == Mirrored("train-1", "ref", "url", None, {"a": "1"}, "5")
    assert file.of("mlflow").run("over-1") == settled
    assert file.of("mlflow").cursor() == Cursor(points_seq=7)
    file.close()


def test_a_server_and_what_was_restored_of_it_do_not_run_side_by_side(server: Server, tmp_path: Path) -> None:
    """Both launched the same jobs: one was restored while the other was down, and people were only warned."""
    restored, another = Home(tmp_path / "restored"), Home(tmp_path / "another")
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    copies.restore(restored, tmp_path / "copy")
    migrate(another)
    held = compose.hold_server(server.home)
    assert held is not None
    with pytest.raises(OperationError, match="restored backup of the other") as refused:
        compose.hold_server(restored)
    assert "tm down" in refused.value.hint
    beside = compose.hold_server(another)
    assert beside is not None
    held.close()
    again = compose.hold_server(restored)
    assert again is not None
    for one in (beside, again):
        one.close()


def test_a_copy_holds_together_whatever_is_written_meanwhile(server: Server, tmp_path: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        metrics = SqlMetricStore(server.home.metrics_db)
        step = 3000
        while not ended.is_set():
            metrics.write([point(step + n) for n in range(50)], [])
            step += 50
        metrics.close()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(3):
            server.submit()
            copies.backup(server.home, tmp_path / f"copy{number}", blobs=False)
            server.tick()
    finally:
        ended.set()
        writing.join()
    for number in range(3):
        copies.restore(Home(tmp_path / f"other{number}"), tmp_path / f"copy{number}")
        migrate(Home(tmp_path / f"other{number}"))
        server_there = Server(Home(tmp_path / f"other{number}"))
        server_there.tick()
        assert server_there.job(f"train-{number + 2}").id == f"train-{number + 2}", "what the log had not taken is in the inbox"


def test_a_copy_has_the_points_of_what_its_log_says_has_ended_and_none_of_what_is_newer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The points were copied before the log: of a job that ended between, a part of the curve was restored as the whole."""
    home, original = server.home, copies._copy_database
    newer = [
        MetricPoint("train-1", 2, 0, 1990, "loss", 0.1, 9000.0, Arrival(0, 1)),
        MetricPoint("train-1", 2, 0, 3000, "loss", 0.1, 9000.0, Arrival(0, 2)),
        MetricPoint("train-1", 2, 0, None, "early", 0.1, 9000.0, Arrival(0, 3)),
        MetricPoint("train-9", 1, 0, 1, "loss", 0.2, 9000.0, Arrival(0, 1)),
    ]

    def moving_on(path: Path, target: Path) -> None:
        writing = SqlMetricStore(home.metrics_db) if path == home.events_db else None
        if writing is not None:
            writing.write([point(2000)], [])
        original(path, target)
        if writing is not None:
            writing.write(newer, [])
            writing.close()

    monkeypatch.setattr(copies, "_copy_database", moving_on)
    copies.backup(home, tmp_path / "copy", blobs=False)
    other = Home(tmp_path / "other")
    copies.restore(other, tmp_path / "copy")
    migrate(other)
    metrics = SqlMetricStore(other.metrics_db)
    with sqlite3.connect(other.metrics_db) as raw:
        assert raw.execute("SELECT job, name FROM series").fetchall() == [("train-1", "loss")]
    raw.close()
    kept = [row[0] for row in metrics.points("train-1", "loss", None, 10_000)]
    assert kept == [*range(1990), *range(1991, 2001)], "the newer attempt had replaced one step"
    assert metrics.last(["train-1", "train-9"]) == {"train-1": {"loss": (2000, 0.5, 3000.0)}}
    metrics.write([replace(one, value=0.4) for one in newer], [])
    assert metrics.last(["train-1", "train-9"]) == {
        "train-1": {"early": (None, 0.4, 9000.0), "loss": (3000, 0.4, 9000.0)}, "train-9": {"loss": (1, 0.4, 9000.0)},
    }, "a restored server gives these numbers to others"  # fmt: skip
    metrics.close()


def test_a_copy_has_the_points_that_were_on_their_way(server: Server, tmp_path: Path) -> None:
    """An agent sends what was told at the end for seconds after it: the first part of a curve was restored as the whole."""
    with_points = SqlMetricStore(server.home.metrics_db)
    with_points.write([replace(point(1), arrival=Arrival(0, 1))], [])
    with_points.close()
    for key in ("train-1.1/n0", "train-1.7/n0", "train-9.1/n0"):  # the others are newer than the copied log
        waiting = PointFile(str(server.home.points(key)), 0.0)
        waiting.append(waiting.lines([(n, float(n), 0, n, {"loss": 1.0 / n}) for n in (1, 2)]), {}, 2)
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    other = Home(tmp_path / "other")
    copies.restore(other, tmp_path / "copy")
    migrate(other)
    metrics = SqlMetricStore(other.metrics_db)
    assert import_points(other, metrics) == 2
    told = [(step, value) for step, value, *_ in metrics.points("train-1", "loss", None, 10_000)]
    assert ((1, 0.5) in told, (2, 0.5) in told, metrics.jobs("", 9)) == (True, True, ["train-1"])
    assert not list(other.points("").parent.iterdir())
    metrics.close()
    (tmp_path / "copy" / "points" / "train-1.1~n0.jsonl").write_text("")
    with pytest.raises(OperationError, match=r"is damaged: points/train-1.1~n0.jsonl is not as it was written"):
        copies.restore(Home(tmp_path / "third"), tmp_path / "copy")


def test_what_is_not_whole_or_not_empty_is_refused(server: Server, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with pytest.raises(NotFoundError, match="is not a complete backup"):
        copies.restore(Home(tmp_path / "other"), copy)
    copies.backup(server.home, copy, blobs=False)
    with pytest.raises(ConflictError, match="is not empty"):
        copies.backup(server.home, copy, blobs=False)
    with pytest.raises(ConflictError, match=r"is not empty: .*events\.db"):
        copies.restore(server.home, copy)
    spoil(copy / "inbox.db")
    with pytest.raises(OperationError, match=r"is damaged: inbox.db is not as it was written"):
        copies.restore(Home(tmp_path / "other"), copy)
    assert not (tmp_path / "other" / "events.db").exists()
    (copy / "backup.json").write_text("{}")
    with pytest.raises(NotFoundError, match="is invalid"):
        copies.restore(Home(tmp_path / "other"), copy)


def test_an_agent_that_is_about_to_start_its_ranks_keeps_it_from_coming_back(server: Server, tmp_path: Path) -> None:
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    directory = server.home.attempt("train-1", 1, 0)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / AGENT).write_text(json.dumps(own_identity()))
    server.home.live.mkdir(exist_ok=True)
    (server.home.live / "train-1.1~n0").touch()
    with pytest.raises(ConflictError, match=f"still run: {os.getpid()}"):
        copies.restore(Home(tmp_path / "other"), tmp_path / "copy")


def test_who_logged_in_stays_logged_in_after_a_restore(server: Server, tmp_path: Path) -> None:
    """The tokens come back, so the authority that people trust does, too; otherwise another server would answer them."""
    before = own(server.home, frozenset(("gpu1",)))
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    other = Home(tmp_path / "other")
    copies.restore(other, tmp_path / "copy")
    after = own(other, frozenset(("gpu2",)))
    assert after.authority == before.authority
    assert {oct(path.stat().st_mode & 0o777) for path in (*other.tls.iterdir(), other.tls)} == {"0o600", "0o700"}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_jobs_of_the_lost_home_that_still_run_keep_it_from_coming_back(server: Server, tmp_path: Path, elsewhere: bool) -> None:
    """Restored beside them, their jobs would run twice: in its place, or elsewhere while the old server is only stopped."""
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    other = Home(tmp_path / "other")
    sdk = str((server.home if elsewhere else other).attempt("train-1", 1, 0) / "rank0.sdk")
    rank = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={ENV_SDK: sdk})
    try:
        with pytest.raises(ConflictError, match=f"still run: {rank.pid}"):
            copies.restore(other, tmp_path / "copy")
    finally:
        rank.communicate(b"\n")
    assert copies.restore(other, tmp_path / "copy").live == ("train-1.1",)


@pytest.mark.parametrize("name", ["events", "inbox", "metrics"])
def test_every_file_is_checked(server: Server, name: str) -> None:
    """R22: the hint for a damaged database named `tm doctor`, which checked no file."""
    assert [(found.name, found.ok) for found in check_files(server.home)] == [
        (f"{store}.db", True) for store in ("events", "inbox", "metrics")
    ]
    server.events.close()
    server.inbox.close()
    spoil(server.home.root / f"{name}.db")
    wrong = [found for found in check_files(server.home) if not found.ok]
    assert [found.name for found in wrong] == [f"{name}.db"]
    assert ("sets it aside" if name == "metrics" else "tm restore") in wrong[0].hint


def test_a_changed_event_and_a_file_of_another_home_are_found(server: Server, tmp_path: Path) -> None:
    with sqlite3.connect(server.home.events_db) as raw:
        raw.execute("UPDATE event SET data = data || ' ' WHERE seq = 3")
    raw.close()
    with sqlite3.connect(server.home.metrics_db) as raw:
        raw.execute("UPDATE identity SET home = 'another.1'")
    raw.close()
    found = {one.name: one for one in check_files(server.home)}
    assert "event 3 is not what was written" in found["events.db"].text
    assert "is of another home (another.1)" in found["metrics.db"].text


@pytest.mark.parametrize("when", ["header", "middle", "curves"])
def test_damaged_metrics_are_set_aside_and_jobs_run(server: Server, when: str) -> None:
    """R22: with a damaged `metrics.db` nothing started."""
    troubles.own.forget()
    home = server.home
    if when == "header":
        for path in home.root.glob("metrics.db-*"):
            path.unlink()
        home.metrics_db.write_bytes(b"no database" * 1000)
    elif when == "curves":  # which no start looks at: the first write meets it
        spoil_table(home.metrics_db, "point")
    else:
        spoil(home.metrics_db)
    migrate(home)
    metrics = SqlMetricStore(home.metrics_db)
    metrics.write([point(n) for n in range(3000)], [])
    assert metrics.last(["train-1"])["train-1"]["loss"][0] == 2999
    assert metrics.series("train-1", "loss")
    metrics.close()
    migrate(home)
    assert [one.topic for one in troubles.own.said()] == ["damaged metrics"]
    assert "jobs run on" in troubles.own.said()[0].text
    assert len(list(home.root.glob("metrics.db.damaged-*"))) >= 1
    troubles.own.forget()


def test_a_log_from_the_future_is_found(server: Server) -> None:
    """R19: after a start with the clock 30 days ahead, `tm doctor` reported no problem."""
    server.clock.time_s = time.time() + 30 * 86_400
    server.submit()
    server.tick()
    found = {one.name: one for one in check_files(server.home)}["events.db"]
    assert (found.ok, "720.0 h ahead" in found.text) == (False, True)


def test_a_backup_says_of_what_it_is(server: Server, tmp_path: Path) -> None:
    copies.backup(server.home, tmp_path / "copy", blobs=False)
    taken = json.loads((tmp_path / "copy" / "backup.json").read_text())
    assert taken["id"] == server.home.identity()
    assert sorted(taken["files"]) == ["events.db", "inbox.db", "metrics.db", "token"]
    assert (tmp_path / "copy" / "token").stat().st_mode & 0o077 == 0
