"""The owner and the tags of jobs, to find jobs by.

Frozen: `schema.py` changes, this revision does not.
"""

import json

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Text, text

from trainmaster.model import redaction

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_PAGE = text("SELECT seq, data FROM job WHERE seq > :seq ORDER BY seq LIMIT 500")
_LABELLED = text("INSERT INTO label (name, value, seq) VALUES (:name, :value, :seq)")


def upgrade(store: str) -> None:
    if store == "events":
        op.create_table(
            "label",
            Column("name", Text, primary_key=True),
            Column("value", Text, primary_key=True),
            Column("seq", BigInteger, primary_key=True, autoincrement=False),
            Index("label_of_job", "seq"),
            sqlite_with_rowid=False,
        )
        _label()


def downgrade(store: str) -> None:
    raise NotImplementedError("there is no way back: restore a copy of the file")


def _label() -> None:
    connection, seq = op.get_bind(), 0
    while jobs := connection.execute(_PAGE, {"seq": seq}).all():
        seq = jobs[-1].seq
        rows = [{"name": name, "value": value, "seq": row.seq} for row in jobs for name, value in _labels(json.loads(row.data))]
        if rows:
            connection.execute(_LABELLED, rows)


def _labels(job: dict) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    owner = job.get("member") or job.get("origin", {}).get("user", "")
    tags = redaction.values(job.get("spec", {}).get("tags") or {})
    return [("owner", owner), *((f"tag:{name}", str(value)) for name, value in tags.items())]
