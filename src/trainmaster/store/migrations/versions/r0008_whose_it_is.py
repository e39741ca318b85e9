"""The id of the home that a database belongs to.

Frozen: `schema.py` changes, this revision does not.
"""

from alembic import op
from sqlalchemy import Column, Integer, Text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    if store != "mirror":
        op.create_table(
            "identity",
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("home", Text, nullable=False),
        )


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")
