"""Idempotency keys of submissions: they outlive the rows of the inbox.

Frozen: `schema.py` changes, this revision does not.
"""

import hashlib

from alembic import op
from sqlalchemy import Column, LargeBinary, Text, text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_THERE = text("SELECT key, job FROM inbox WHERE type = 'SubmitJob'")
_KEPT = text("INSERT INTO answer (key, job) VALUES (:key, :job)")


def upgrade(store: str) -> None:
    if store == "inbox":
        op.create_table(
            "answer",
            Column("key", LargeBinary, primary_key=True, nullable=False),
            Column("asked", LargeBinary),
            Column("job", Text, nullable=False),
            sqlite_with_rowid=False,
        )
        rows = op.get_bind().execute(_THERE).all()
        kept = [{"key": hashlib.sha256(row.key.encode()).digest()[:16], "job": row.job} for row in rows]
        if kept:
            op.get_bind().execute(_KEPT, kept)


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")
