"""Tables for artifacts and notes, arrival numbers of metric points, and the mirrors' cursors.

Frozen: `schema.py` changes, this revision does not.
"""

import json
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Text, text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    steps = {"events": upgrade_events, "metrics": upgrade_metrics, "mirror": upgrade_mirror}
    steps.get(store, lambda: None)()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def _seq() -> BigInteger:
    return BigInteger().with_variant(Integer(), "sqlite")


def upgrade_events() -> None:
    op.create_table(
        "artifact",
        Column("job", Text, primary_key=True),
        Column("path", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        Column("data", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "child",
        Column("job", Text, primary_key=True),
        Column("parent", Text, nullable=False),
        Column("seq", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("child_of_parent", "child", ["parent", "seq"])
    op.create_table(
        "note",
        Column("seq", _seq(), primary_key=True, autoincrement=False),
        Column("job", Text),
        Column("project", Text, nullable=False),
        Column("experiment", Text),
        Column("data", Text, nullable=False),
    )
    op.create_index("note_of_job", "note", ["job", "seq"])
    op.create_index("note_of_project", "note", ["project", "seq"])
    op.create_index("note_of_experiment", "note", ["experiment", "seq"])
    _move_artifacts()


def _move_artifacts() -> None:
    """Out of the jobs' own values, where the first release kept them."""
    connection = op.get_bind()
    page = text("SELECT seq, id, data FROM job WHERE seq > :seq ORDER BY seq LIMIT 500")
    moved = text("INSERT INTO artifact (job, path, kind, bytes, data) VALUES (:job, :path, 'file', :bytes, :data)")
    seq = 0
    while jobs := connection.execute(page, {"seq": seq}).all():
        seq = jobs[-1].seq
        rows = [_artifact_row(row.id, kept) for row in jobs for kept in json.loads(row.data).get("artifacts") or []]
        if rows:
            connection.execute(moved, rows)


def _artifact_row(job: str, kept: dict[str, Any]) -> dict[str, object]:
    value = json.dumps({**kept, "kind": "file"}, ensure_ascii=False, separators=(",", ":"))
    return {"job": job, "path": kept["path"], "bytes": min(max(int(kept["bytes"]), 0), 2**63 - 1), "data": value}


def upgrade_metrics() -> None:
    for name, position in (("point", "step"), ("unstepped", "n")):
        # Recreated, since SQLite would add the column at another position in the table definition than the models have.
        op.rename_table(name, f"{name}_before")
        op.create_table(
            name,
            Column("series", _seq(), primary_key=True, autoincrement=False),
            Column(position, BigInteger, primary_key=True, autoincrement=False),
            Column("attempt", Integer, nullable=False),
            Column("value", Float(53)),
            Column("time_s", Float(53), nullable=False),
            Column("seq", BigInteger, nullable=False),
            sqlite_with_rowid=False,
        )
        columns = f"series, {position}, attempt, value, time_s"
        op.execute(f"INSERT INTO {name} ({columns}, seq) SELECT {columns}, 0 FROM {name}_before")
        op.drop_table(f"{name}_before")
        op.create_index(f"{name}_seq", name, ["seq"])


def upgrade_mirror() -> None:
    op.create_table(
        "cursor",
        Column("sink", Text, primary_key=True),
        Column("events_seq", BigInteger, nullable=False),
        Column("points_seq", BigInteger, nullable=False),
        Column("choice", Text, nullable=False),
        Column("outbox", Text),
    )
    op.create_table(
        "run",
        Column("sink", Text, primary_key=True),
        Column("job", Text, primary_key=True),
        Column("ref", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("told", Text),
        Column("kept", Text, nullable=False),
        Column("mark", Text, nullable=False),
        Column("fill", Text, nullable=False),
        Column("fault", Text),
        Column("unfinished", Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("run_of_job", "run", ["job"])
    op.create_index("run_unfinished", "run", ["sink", "unfinished"])
