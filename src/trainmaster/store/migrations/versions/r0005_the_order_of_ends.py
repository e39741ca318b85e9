"""The order in which jobs that ran have ended.

Frozen: `schema.py` changes, this revision does not.
"""

import json

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, Text, text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_PAGE = text("SELECT seq, id, data FROM job WHERE seq > :seq ORDER BY seq LIMIT 500")
_END = text("SELECT max(seq) FROM event WHERE job = :id AND type IN ('AttemptEnded', 'CancelRequested')")  # the last ends it
_NUMBERED = text("INSERT INTO over (number, job) VALUES (:number, :job)")


def upgrade(store: str) -> None:
    if store == "events":
        number = BigInteger().with_variant(Integer(), "sqlite")
        op.create_table(
            "over",
            Column("number", number, primary_key=True, autoincrement=False),
            Column("job", Text, nullable=False),
        )
        _number()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def _number() -> None:
    connection, ends, seq = op.get_bind(), list[tuple[int, str]](), 0
    while jobs := connection.execute(_PAGE, {"seq": seq}).all():
        seq = jobs[-1].seq
        for row in jobs:
            job = json.loads(row.data)
            if job.get("ended_s") is not None and job.get("ran_s", 0.0) > 0:
                ends.append((connection.scalar(_END, {"id": row.id}) or 0, row.id))
    rows = [{"number": number, "job": id} for number, (_, id) in enumerate(sorted(ends), 1)]
    if rows:
        connection.execute(_NUMBERED, rows)
