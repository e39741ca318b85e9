"""The first tables. Frozen: `schema.py` changes, this revision does not."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    {"events": upgrade_events, "inbox": upgrade_inbox, "metrics": upgrade_metrics}.get(store, lambda: None)()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def _seq() -> BigInteger:
    return BigInteger().with_variant(Integer(), "sqlite")


def upgrade_events() -> None:
    op.create_table(
        "event",
        Column("seq", _seq(), primary_key=True, autoincrement=False),
        Column("now_s", Float(53), nullable=False),
        Column("job", Text),
        Column("attempt", Integer),
        Column("type", Text, nullable=False),
        Column("data", Text, nullable=False),
        Column("hash", Text, nullable=False),
    )
    op.create_index("event_of_job", "event", ["job", "seq"])
    op.create_table(
        "job",
        Column("seq", _seq(), primary_key=True, autoincrement=False),
        Column("id", Text, nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("project", Text, nullable=False),
        Column("experiment", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("live", Boolean, nullable=False),
        Column("data", Text, nullable=False),
    )
    op.create_index("job_id", "job", ["id"], unique=True)
    op.create_index("job_number", "job", ["experiment", "number"])
    op.create_index("job_name", "job", ["name", "seq"])
    op.create_index("job_live", "job", ["live", "seq"])
    op.create_index("job_state", "job", ["state", "seq"])
    op.create_index("job_project", "job", ["project", "state", "seq"])
    op.create_index("job_experiment", "job", ["experiment", "state", "seq"])
    op.create_table(
        "attempt",
        Column("job", Text, primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("data", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table("node", Column("name", Text, primary_key=True), Column("data", Text, nullable=False))
    op.create_table(
        "head",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("last_seq", BigInteger, nullable=False),
        Column("last_now_s", Float(53), nullable=False),
        Column("last_hash", Text, nullable=False),
        Column("inbox_cursor", BigInteger, nullable=False),
    )


def upgrade_inbox() -> None:
    op.create_table(
        "inbox",
        Column("seq", _seq(), primary_key=True, autoincrement=False),
        Column("key", Text, nullable=False),
        Column("job", Text, nullable=False),
        Column("type", Text, nullable=False),
        Column("report", Boolean, nullable=False),
        Column("data", Text, nullable=False),
        Column("received_s", Float(53), nullable=False),
    )
    op.create_index("inbox_key", "inbox", ["key"], unique=True)
    op.create_index("inbox_kind", "inbox", ["report", "seq"])
    op.create_index("inbox_age", "inbox", ["received_s"])
    op.create_table("counter", Column("name", Text, primary_key=True), Column("last", BigInteger, nullable=False))


def upgrade_metrics() -> None:
    op.create_table(
        "series",
        Column("id", _seq(), primary_key=True),
        Column("job", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("rank", Integer, nullable=False),
    )
    op.create_index("series_of_job", "series", ["job", "name", "rank"], unique=True)
    for name, position in (("point", "step"), ("unstepped", "n")):
        op.create_table(
            name,
            Column("series", _seq(), primary_key=True, autoincrement=False),
            Column(position, BigInteger, primary_key=True, autoincrement=False),
            Column("attempt", Integer, nullable=False),
            Column("value", Float(53)),
            Column("time_s", Float(53), nullable=False),
            sqlite_with_rowid=False,
        )
    op.create_table(
        "latest",
        Column("job", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("rank", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("step", BigInteger),
        Column("value", Float(53)),
        Column("time_s", Float(53), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fence",
        Column("job", Text, primary_key=True),
        Column("attempt", Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "heartbeat",
        Column("key", Text, primary_key=True),
        Column("job", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("time_s", Float(53), nullable=False),
        Column("step", BigInteger),
        Column("memory_bytes", BigInteger, nullable=False),
        Column("cpu_s", Float(53), nullable=False),
    )
    op.create_index("heartbeat_of_job", "heartbeat", ["job", "attempt"])
