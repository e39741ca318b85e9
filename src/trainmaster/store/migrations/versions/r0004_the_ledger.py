"""The ledger: charges of attempts and decayed service of members. It begins with the next placement.

Frozen: `schema.py` changes, this revision does not.
"""

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Integer, Text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    if store == "events":
        upgrade_events()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def upgrade_events() -> None:
    op.create_table(
        "charge",
        Column("job", Text, primary_key=True),
        Column("attempt", Integer, primary_key=True),
        Column("pool", Text, primary_key=True),
        Column("project", Text, nullable=False),
        Column("member", Text, nullable=False),
        Column("work", Text, nullable=False),
        Column("experiment", Text, nullable=False),
        Column("gpu_milli", BigInteger, nullable=False),
        Column("cpu_milli", BigInteger, nullable=False),
        Column("price", Float(53), nullable=False),
        Column("currency", Text, nullable=False),
        Column("from_ms", BigInteger, nullable=False),
        Column("until_ms", BigInteger, nullable=False),
        Column("lost_from_ms", BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_index("charge_until", "charge", ["until_ms", "from_ms"])
    op.create_table(
        "balance",
        Column("project", Text, primary_key=True),
        Column("member", Text, primary_key=True),
        Column("service", Float(53), nullable=False),
        Column("at_s", Float(53), nullable=False),
        sqlite_with_rowid=False,
    )
