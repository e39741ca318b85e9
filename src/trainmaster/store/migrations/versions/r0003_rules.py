"""The cluster rules, as last configured.

Frozen: `schema.py` changes, this revision does not.
"""

from alembic import op
from sqlalchemy import Column, Integer, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    if store == "events":
        op.create_table(
            "rules",
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("data", Text, nullable=False),
        )


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")
