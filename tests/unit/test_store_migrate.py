"""A home's files: made at once, left alone when they are up to date, brought forward when they are older."""

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
from trainmaster.store import migrations, schema
from trainmaster.store.engine import open_engine
from trainmaster.store.migrate import migrate, migrate_files
from trainmaster.store.upgrade import configuration, upgrade


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
    home.events_db.unlink()
    with pytest.raises(OperationError, match="newer version"):
        migrate(home)
    assert _run(home.inbox_db, "SELECT version_num FROM alembic_version") == [("9999",)]


def _second_revision(folder: Path, monkeypatch: pytest.MonkeyPatch, events: str) -> None:
    """A second revision, as the next release will have one; `events` is the body of its `upgrade_events`."""
    shutil.copytree(Path(migrations.__file__).parent, folder)
    first = (folder / "versions" / "r0001_first.py").read_text()
    begin = first[: first.index("def _seq")].replace("down_revision = None", 'down_revision = "0001"')
    bodies = f"def upgrade_events():\n    {events}\n\ndef upgrade_inbox():\n    pass\n\ndef upgrade_metrics():\n    pass\n"
    second = begin.replace('\nrevision = "0001"', '\nrevision = "0002"') + bodies
    (folder / "versions" / "r0002_second.py").write_text(second)
    monkeypatch.setattr(migrations, "__file__", str(folder / "__init__.py"))
    monkeypatch.setattr(schema, "REVISIONS", ("0001", "0002"))
    monkeypatch.setattr(schema, "HEAD", "0002")


def test_an_older_file_is_brought_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    migrate(home)
    _run(home.events_db, "INSERT INTO node (name, data) VALUES ('n1', '{}')")
    _second_revision(tmp_path / "migrations", monkeypatch, "op.add_column('node', Column('room', Text))")
    migrate(home)
    assert _run(home.events_db, "SELECT name, data, room FROM node") == [("n1", "{}", None)]
    files = (home.events_db, home.inbox_db, home.metrics_db)
    assert [_run(path, "SELECT version_num FROM alembic_version") for path in files] == [[("0002",)]] * 3


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    migrate(home)
    before = _tables(home.events_db)
    steps = "op.add_column('node', Column('room', Text)); op.drop_table('absent')"
    _second_revision(tmp_path / "migrations", monkeypatch, steps)
    with pytest.raises(OperationError, match="no such table: absent"):
        migrate(home)
    assert _tables(home.events_db) == before
    assert _run(home.events_db, "SELECT version_num FROM alembic_version") == [("0001",)]
