"""The last stored point of each agent, and the order of heartbeats.

Frozen: `schema.py` changes, this revision does not.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Integer, Text

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    if store == "metrics":
        _order_heartbeats()
        op.create_table(
            "arrival",
            Column("job", Text, primary_key=True),
            Column("attempt", Integer, primary_key=True, autoincrement=False),
            Column("node_index", Integer, primary_key=True, autoincrement=False),
            Column("n", BigInteger, nullable=False),
            Column("origin_s", Float(53)),
            sqlite_with_rowid=False,
        )


def _order_heartbeats() -> None:
    """Recreated, since SQLite would add the column at another position in the table definition than the models have."""
    columns = "key, job, attempt, time_s, step, memory_bytes, cpu_s"
    op.drop_index("heartbeat_of_job", "heartbeat")
    op.rename_table("heartbeat", "heartbeat_before")
    op.create_table(
        "heartbeat",
        Column("key", Text, primary_key=True),
        Column("job", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("time_s", Float(53), nullable=False),
        Column("step", BigInteger),
        Column("memory_bytes", BigInteger, nullable=False),
        Column("cpu_s", Float(53), nullable=False),
        Column("at_s", Float(53), nullable=False, server_default="0"),
    )
    op.execute(f"INSERT INTO heartbeat ({columns}, at_s) SELECT {columns}, 0 FROM heartbeat_before")
    op.drop_table("heartbeat_before")
    op.create_index("heartbeat_of_job", "heartbeat", ["job", "attempt"])


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")
