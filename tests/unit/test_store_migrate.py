"""A home's files are created, left unchanged when current, and migrated when older."""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.job import State
from trainmaster.ports.store import ArtifactTotals
from trainmaster.store import migrations, schema
from trainmaster.store.codec import dump
from trainmaster.store.database import open_engine
from trainmaster.store.events import SqlEventStore
from trainmaster.store.migrate import migrate, migrate_files
from trainmaster.store.upgrade import configuration, upgrade
from trainmaster.testing.store_contract import some_job


def _tables(path: Path) -> set[tuple[str, str, str | None]]:
    with sqlite3.connect(path) as raw:
        found = set(raw.execute("SELECT type, name, sql FROM sqlite_master"))
    raw.close()
    return found


def _run(path: Path, statement: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as raw:
        found = raw.execute(statement).fetchall()
    raw.close()
    return found


@pytest.mark.parametrize("store", sorted(schema.STORES))
def test_made_at_once_is_what_all_revisions_together_make(tmp_path: Path, store: str) -> None:
    at_once, step_by_step = tmp_path / "once.db", tmp_path / "steps.db"
    migrate_files({store: at_once})
    engine = open_engine(step_by_step)
    upgrade(store, engine)
    engine.dispose()
    assert _tables(at_once) == _tables(step_by_step)
    assert _run(at_once, "SELECT * FROM alembic_version") == _run(step_by_step, "SELECT * FROM alembic_version")


def test_the_head_is_the_last_revision() -> None:
    scripts = ScriptDirectory.from_config(configuration())
    history = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(history)) == schema.REVISIONS


def test_a_new_home_needs_no_alembic(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom trainmaster.home import Home\n"
        "from trainmaster.store.migrate import migrate\n"
        "for _ in range(2): migrate(Home(Path(sys.argv[1])))\nprint('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "home")], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_twice_at_once_and_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    threads = [threading.Thread(target=migrate, args=(home,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = (home.events_db, home.inbox_db, home.metrics_db)
    assert [_run(path, "SELECT version_num FROM alembic_version") for path in files] == [[(schema.HEAD,)]] * 3
    content = [path.read_bytes() for path in files]
    migrate(home)
    assert [path.read_bytes() for path in files] == content
    assert home.root.stat().st_mode & 0o777 == 0o700


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    migrate(home)
    _run(home.inbox_db, "UPDATE alembic_version SET version_num = '9999'")
    home.metrics_db.unlink()
    with pytest.raises(OperationError, match="newer version"):
        migrate(home)
    assert _run(home.inbox_db, "SELECT version_num FROM alembic_version") == [("9999",)]


def _next_revision(folder: Path, monkeypatch: pytest.MonkeyPatch, events: str) -> None:
    """One more revision, as in the next release; `events` is the body of its `upgrade_events`."""
    shutil.copytree(Path(migrations.__file__).parent, folder)
    first = (folder / "versions" / "r0001_first.py").read_text()
    begin = first[: first.index("def _seq")].replace("down_revision = None", f'down_revision = "{schema.HEAD}"')
    bodies = f"def upgrade_events():\n    {events}\n\ndef upgrade_inbox():\n    pass\n\ndef upgrade_metrics():\n    pass\n"
    following = begin.replace('\nrevision = "0001"', '\nrevision = "9000"') + bodies
    (folder / "versions" / "r9000_next.py").write_text(following)
    monkeypatch.setattr(migrations, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9000"))
    monkeypatch.setattr(schema, "HEAD", "9000")


def test_an_older_file_is_brought_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    migrate(home)
    _run(home.events_db, "INSERT INTO node (name, data) VALUES ('n1', '{}')")
    _next_revision(tmp_path / "migrations", monkeypatch, "op.add_column('node', Column('room', Text))")
    migrate(home)
    assert _run(home.events_db, "SELECT name, data, room FROM node") == [("n1", "{}", None)]
    files = (home.events_db, home.inbox_db, home.metrics_db)
    assert [_run(path, "SELECT version_num FROM alembic_version") for path in files] == [[("9000",)]] * 3


def test_artifacts_leave_their_jobs(tmp_path: Path) -> None:
    """As the first release wrote them: inside the job, without a kind."""
    path = tmp_path / "events.db"
    engine = open_engine(path)
    upgrade("events", engine, "0001")
    with_artifacts = {**json.loads(dump(some_job(1))), "artifacts": [{"path": "é.png", "digest": "ab", "bytes": 3, "attempt": 1}]}
    columns = "seq, id, number, project, experiment, name, state, live, data"
    for seq, data in ((1, with_artifacts), (2, json.loads(dump(some_job(2))))):
        values = f"{seq}, 'job-{seq}', {seq}, 'p', 'job', 'job', 'queued', 1"
        _run(path, f"INSERT INTO job ({columns}) VALUES ({values}, '{json.dumps(data, ensure_ascii=False)}')")
    upgrade("events", engine)
    engine.dispose()
    store = SqlEventStore(path)
    assert store.artifacts("job-1", 10) == [Artifact("é.png", "ab", 3, 1)]
    assert (store.artifacts("job-2", 10), store.job("job-1")) == ([], some_job(1))
    assert store.artifact_totals("job-1") == ArtifactTotals(1, 3)
    store.close()


def test_ends_are_numbered_as_they_are_in_the_log(tmp_path: Path) -> None:
    """Jobs that never ran or are not over are not among them."""
    path = tmp_path / "events.db"
    engine = open_engine(path)
    upgrade("events", engine, "0004")
    ran = {"ended_s": 9.0, "ran_s": 5.0}
    jobs = [some_job(1, State.CANCELLED, **ran), some_job(2, State.FAILED, **ran), some_job(3, State.CANCELLED, ended_s=9.0)]
    columns = "seq, id, number, project, experiment, name, state, live, data"
    for job in (*jobs, some_job(4, ran_s=2.0)):
        values = f"{job.seq}, '{job.id}', {job.seq}, 'p', 'job', 'job', '{job.state.value}', 0, '{dump(job)}'"
        _run(path, f"INSERT INTO job ({columns}) VALUES ({values})")
    log = [("job-1", "AttemptEnded"), ("job-2", "CancelRequested"), ("job-2", "AttemptEnded"), ("job-1", "CancelRequested")]
    for seq, (job_id, kind) in enumerate([*log, ("job-2", "Waited")], 1):
        _run(path, f"INSERT INTO event (seq, now_s, job, type, data, hash) VALUES ({seq}, 9.0, '{job_id}', '{kind}', '', '')")
    upgrade("events", engine)
    engine.dispose()
    store = SqlEventStore(path, read_only=True)
    assert [job.id for job in store.over_since(0)[1]] == ["job-2", "job-1"]
    store.close()


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    migrate(home)
    before = _tables(home.events_db)
    steps = "op.add_column('node', Column('room', Text)); op.drop_table('absent')"
    _next_revision(tmp_path / "migrations", monkeypatch, steps)
    with pytest.raises(OperationError, match="no such table: absent"):
        migrate(home)
    assert _tables(home.events_db) == before
    assert _run(home.events_db, "SELECT version_num FROM alembic_version") == [(schema.REVISIONS[-2],)]
