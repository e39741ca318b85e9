"""One id links a home, its databases and its launches. Files that do not belong together are refused or left alone."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from control_server import Server

from trainmaster import backup, compose, configuration, new_log, troubles
from trainmaster.blobs.factory import open_blobs
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model import events as ev
from trainmaster.model.ids import AgentKey
from trainmaster.model.nodes import Node
from trainmaster.ports.engine import Observation, Phase
from trainmaster.ports.store import NewEvent
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.migrate import migrate

NODE = Node("node0", "local", "host", "127.0.0.1", cpus=4.0, memory_bytes=8 * 2**30)


def lived_in(root: Path) -> Home:
    """A home in which something was recorded."""
    home = Home(root)
    migrate(home, "server")
    store = SqlEventStore(home.events_db)
    store.append(1000.0, [NewEvent(None, None, ev.NodeSeen(NODE))], {}, (NODE,), 0)
    store.close()
    home.attempt("train-3", 1, 0).mkdir(parents=True)
    return home


def ids(home: Home) -> set[str]:
    found = {home.identity()}
    for path in (home.events_db, home.inbox_db, home.metrics_db):
        with sqlite3.connect(path) as raw:
            found.add(raw.execute("SELECT home FROM identity").fetchone()[0])
        raw.close()
    return found


def test_a_home_and_its_databases_bear_one_id(tmp_path: Path) -> None:
    home = lived_in(tmp_path / "home")
    (id,) = ids(home)
    assert id.startswith("server.")
    assert len(id) < 40
    migrate(home, "another")
    assert ids(home) == {id}
    assert ids(lived_in(tmp_path / "other")) != {id}


def test_an_older_home_and_one_without_its_note_are_given_the_id(tmp_path: Path) -> None:
    home = lived_in(tmp_path / "home")
    (id,) = ids(home)
    home.id_file.unlink()
    migrate(home)
    assert ids(home) == {id}
    home.id_file.unlink()
    for path in (home.events_db, home.inbox_db, home.metrics_db):
        with sqlite3.connect(path) as raw:  # as it is when the table was only just added
            raw.execute("DELETE FROM identity")
        raw.close()
    migrate(home, "server")
    (again,) = ids(home)
    assert again.startswith("server.")


def test_a_log_whose_journal_alone_is_there_is_refused_and_the_journal_stays(tmp_path: Path) -> None:
    """SQLite would delete it unread, with the last acknowledged rows: the database may only have been moved away."""
    home = lived_in(tmp_path / "home")
    journal = home.root / "events.db-wal"
    home.events_db.rename(home.root / "elsewhere")
    journal.write_bytes(b"the last events")
    with pytest.raises(OperationError, match="has lost its log"):
        migrate(home, "server")
    assert journal.read_bytes() == b"the last events"


@pytest.mark.parametrize("emptied", [False, True])
def test_a_home_that_lost_its_log_is_refused(tmp_path: Path, emptied: bool) -> None:
    """R9: a new log in an old home used old exit records for its own jobs."""
    home = lived_in(tmp_path / "home")
    shutil.rmtree(home.root / "attempts")
    home.inbox_db.unlink()
    for path in (home.events_db, *home.root.glob("events.db-*")):
        path.write_bytes(b"") if emptied else path.unlink()
    for _ in range(2):  # nothing that was done makes it acceptable
        with pytest.raises(OperationError, match=r"has lost its log: .*home.json, metrics.db are not\. No agent runs") as refused:
            migrate(home)
        assert "move the whole home aside and restore a backup (tm restore FOLDER)" in refused.value.hint
        assert "tm up --new-log" in refused.value.hint
    assert not home.inbox_db.exists()


@pytest.mark.parametrize("store", ["events", "inbox", "metrics"])
def test_databases_of_two_homes_are_refused(tmp_path: Path, store: str) -> None:
    """R9: a log of another home."""
    home, other = lived_in(tmp_path / "home"), lived_in(tmp_path / "other")
    for path in home.root.glob(f"{store}.db*"):
        path.unlink()
    shutil.copy(other.root / f"{store}.db", home.root / f"{store}.db")
    with pytest.raises(OperationError, match=f"do not belong together: .*{store}.db belongs to {other.identity()}"):
        migrate(home)
    home.id_file.unlink()
    with pytest.raises(OperationError, match="do not belong together"):
        migrate(home)


@pytest.mark.parametrize("store", ["inbox", "metrics"])
def test_what_jobs_can_do_without_is_made_anew_and_told(tmp_path: Path, store: str) -> None:
    home = lived_in(tmp_path / "home")
    for path in home.root.glob(f"{store}.db*"):
        path.unlink()
    troubles.own.forget()
    migrate(home)
    assert len(ids(home)) == 1
    assert [one.topic for one in troubles.own.said()] == [f"lost {store}"]
    troubles.own.forget()


def test_a_moved_home_keeps_working_and_a_copy_beside_it_is_refused(tmp_path: Path) -> None:
    home = lived_in(tmp_path / "home")
    home.root.rename(tmp_path / "moved")
    moved = Home(tmp_path / "moved")
    migrate(moved)
    (tmp_path / "link").symlink_to(moved.root)
    migrate(Home(tmp_path / "link"))
    migrate(moved)
    shutil.copytree(moved.root, tmp_path / "copy")
    with pytest.raises(OperationError, match="is a copy of"):
        migrate(Home(tmp_path / "copy"))
    shutil.rmtree(moved.root)
    migrate(Home(tmp_path / "copy"))


def test_a_copy_whose_original_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error of the original's disk counted as a proof that the home was moved, and both ran the same jobs."""
    original = lived_in(tmp_path / "home")
    shutil.copytree(original.root, tmp_path / "copy")
    open_file = os.open

    def failing(path: Any, *rest: Any, **named: Any) -> int:
        if Path(path) == original.id_file:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return open_file(path, *rest, **named)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", failing)
        with pytest.raises(OperationError, match=r"may be a copy of .*home, which cannot be read: Input/output error") as refused:
            migrate(Home(tmp_path / "copy"))
    Home(tmp_path / "copy").id_file.unlink()  # as the hint says
    migrate(Home(tmp_path / "copy"))
    assert f"remove {tmp_path / 'copy' / 'home.json'}" in refused.value.hint


def test_a_new_log_is_begun_on_purpose_and_removes_nothing(tmp_path: Path) -> None:
    home = lived_in(tmp_path / "home")
    former = home.identity()
    home.secret_file.write_bytes(b"s" * 32)
    home.events_db.unlink()
    aside = new_log.begin(home)
    assert aside is not None
    assert sorted(path.name for path in aside.iterdir()) == ["home.json", "inbox.db", "metrics.db", "secret"]
    migrate(home)
    assert ids(home) != {former}
    with sqlite3.connect(home.inbox_db) as raw:
        assert dict(raw.execute("SELECT name, last FROM counter")) == {"train": 3}
    raw.close()
    assert home.attempt("train-3", 1, 0).is_dir()
    assert new_log.begin(Home(tmp_path / "new")) is None


def test_a_new_log_gives_out_no_number_whose_directories_are_here(tmp_path: Path) -> None:
    """R9: `train-1` of the new log was `train-1` of the old one."""
    home = Home(tmp_path / "home")
    home.work("train-7", "node0").mkdir(parents=True)
    (home.blobs / "checkpoints" / "my-exp-12").mkdir(parents=True)
    migrate(home)
    inbox = SqlInbox(home.inbox_db)
    with sqlite3.connect(home.inbox_db) as raw:
        assert dict(raw.execute("SELECT name, last FROM counter")) == {"train": 7, "my-exp": 12}
    raw.close()
    inbox.close()


def counters(home: Home) -> dict[str, int]:
    with sqlite3.connect(home.inbox_db) as raw:
        found = dict(raw.execute("SELECT name, last FROM counter"))
    raw.close()
    return found


def opened(home: Home) -> None:
    stores = compose.open_api(home)
    for store in (stores.events, stores.inbox, stores.metrics):
        store.close()


@pytest.mark.parametrize("url", ["", "memory://{}", "{}"])
@pytest.mark.parametrize("how", ["restored", "new log"])
def test_no_number_is_given_out_of_which_the_store_has_something(tmp_path: Path, url: str, how: str) -> None:
    """`sd-1` ran after the backup; the `sd-1` after the restore lost its checkpoints, and the old ones lay under its name."""
    home, other = lived_in(tmp_path / "home"), Home(tmp_path / "other")
    if url:
        place = url.format(tmp_path / "store")
        (home.root / "server.toml").write_text(f'[storage]\nurl = "{place}"\n')
    backup.backup(home, tmp_path / "copy", blobs=False)
    if how == "restored":
        shutil.rmtree(home.root)
        backup.restore(other, tmp_path / "copy")
    else:
        other = home
        home.events_db.unlink()
        new_log.begin(home)
    blobs = open_blobs(configuration.load(other).storage, other)
    blobs.put("checkpoints/sd-7/0001-s5/n0/MANIFEST.json", b"{}")  # copied back after the restore
    blobs.put(f"artifacts/my-exp-12/{'0' * 64}", b"x")
    opened(other)
    blobs.delete_tree("checkpoints")
    opened(other)
    found = counters(other)
    assert (found["sd"], found["my-exp"], other.numbers_unknown.exists()) == (7, 12, False)


def test_while_the_store_of_a_restored_home_cannot_be_listed_no_number_is_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = lived_in(tmp_path / "home"), Home(tmp_path / "other")
    backup.backup(home, tmp_path / "copy", blobs=False)
    backup.restore(other, tmp_path / "copy")
    (other.blobs / "checkpoints").mkdir(parents=True)
    scan = os.scandir

    def failing(path: str) -> Any:
        if Path(path) == other.blobs / "checkpoints":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scan(path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", failing)
        with pytest.raises(OperationError, match="which job numbers it uses is unknown"):
            opened(other)
    opened(other)


def test_an_absent_store_is_not_an_empty_one_and_numbers_stay_unknown(tmp_path: Path) -> None:
    """Its disk was not mounted at the first start after a restore: lost jobs' numbers were given out again, for good."""
    home, other, store = lived_in(tmp_path / "home"), Home(tmp_path / "other"), tmp_path / "disk" / "store"
    (home.root / "server.toml").write_text(f'[storage]\nurl = "{store}"\n')
    backup.backup(home, tmp_path / "copy", blobs=False)
    backup.restore(other, tmp_path / "copy")
    with pytest.raises(OperationError, match=r"which job numbers it uses is unknown: .*No such file") as refused:
        opened(other)
    assert (refused.value.hint.startswith("mount it"), other.numbers_unknown.exists()) == (True, True)
    (store / "artifacts" / "sd-7").mkdir(parents=True)
    opened(other)
    assert (counters(other)["sd"], other.numbers_unknown.exists()) == (7, False)


def test_directories_of_jobs_that_cannot_be_listed_count_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, listing = lived_in(tmp_path / "home"), os.listdir
    home.live.mkdir()
    home.numbers_unknown.touch()

    def failing(path: Any) -> list[str]:
        if Path(path) in (home.root / "attempts", home.live):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listing(path)

    monkeypatch.setattr(os, "listdir", failing)
    with pytest.raises(OperationError, match=r"which job numbers it uses is unknown: .*Input/output error"):
        opened(home)
    assert home.numbers_unknown.exists()
    home.events_db.unlink()
    with pytest.raises(OperationError, match=r"has lost its log: .*Whether agents run is not known: .*live cannot be read"):
        migrate(home)


@pytest.mark.parametrize("older", [False, True])
def test_an_agent_that_the_log_does_not_know_is_not_stopped(tmp_path: Path, older: bool) -> None:
    """R9: a healthy running job was stopped because its log was lost."""
    server = Server(Home(tmp_path))
    server.submit()
    server.tick()
    key = AgentKey("train-1", 2, 0) if older else AgentKey("other-1", 1, 0)
    server.engine.says = {key: Observation(Phase.RUNNING)}
    server.engine.broken = AssertionError("stopped")
    if older:
        with pytest.raises(OperationError, match="the log is older than what runs"):
            server.start()
    else:
        troubles.own.forget()
        server.start()
        assert [one.topic for one in troubles.own.said()] == ["unknown agents"]
        troubles.own.forget()
