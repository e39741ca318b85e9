"""Users' tokens: digests, roles and dates.

Frozen: `schema.py` changes, this revision does not.
"""

from alembic import op
from sqlalchemy import Column, Float, Text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade(store: str) -> None:
    if store == "inbox":
        op.create_table(
            "token",
            Column("name", Text, primary_key=True),
            Column("digest", Text, nullable=False),
            Column("role", Text, nullable=False),
            Column("created_s", Float(53), nullable=False),
            Column("made_by", Text, nullable=False),
            Column("expires_s", Float(53)),
        )


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")
