"""State of the mirrors, one file for all trackers: written by the mirror process alone, read by the api."""

import json
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Row, delete, func, literal, select, update

from trainmaster.ports.tracker import NOT_COPIED, Cursor, Mirrored, Parcel, Run
from trainmaster.store import schema
from trainmaster.store.codec import dump, load
from trainmaster.store.database import Database, upsert
from trainmaster.store.events import SqlEventStore

_cursor, _run, _event = schema.cursor, schema.run, schema.event
_UPSERT_CURSOR = upsert(_cursor, ["sink"])
_UPSERT_RUN = upsert(_run, ["sink", "job"])


class MirrorFile:
    """The file. Raises: OperationError if it cannot be used."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.database = Database("mirror", path, read_only)

    def of(self, sink: str) -> "SqlMirrorState":
        """The state of the mirror for one tracker."""
        return SqlMirrorState(self.database, sink)

    def urls(self, job: str) -> dict[str, str]:
        """Where a job's runs can be viewed: tracker -> URL or directory."""
        query = select(_run.c.sink, _run.c.url, _run.c.fault, _run.c.kept).where(_run.c.job == job).order_by(_run.c.sink)
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
        return {row.sink: " ".join(filter(None, (row.url, _lacking(row.fault, row.kept)))) for row in rows}

    def moved(self, sink: str, address: str) -> None:
        """A tracker on this machine has another address now: its runs are at the same places below it."""
        here = (_run.c.sink == sink) & _run.c.url.like("http://127.0.0.1:%/#/%") & ~_run.c.url.startswith(f"{address}/")
        place = func.substr(_run.c.url, func.instr(_run.c.url, "/#/"))
        with self.database.writing("mirror") as connection:
            connection.execute(update(_run).where(here).values(url=literal(address) + place))

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def _lacking(fault: str | None, kept: str) -> str:
    """What of the job the tracker does not have, and why; "" if nothing is known to be missing."""
    if fault is not None:
        return f"(not mirrored: {fault})"
    skipped = [(path, said) for path, said in json.loads(kept).items() if said.startswith(NOT_COPIED)]
    if not skipped:
        return ""
    path, said = skipped[0]
    more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f"({path}{more} {said})"


class ChangeLog(SqlEventStore):
    """The event log as read by a mirror."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_only=True)

    def last_seq(self) -> int:
        """Sequence number of the newest event."""
        return self.head().last_seq

    def changed(self, after_seq: int, limit: int) -> tuple[list[str], int]:
        """Jobs of the events after a sequence number, and the number of the last event read."""
        query = select(_event.c.seq, _event.c.job).where(_event.c.seq > after_seq).order_by(_event.c.seq).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return list(dict.fromkeys(job for _, job in rows if job is not None)), rows[-1].seq if rows else after_seq


class SqlMirrorState:
    """`trainmaster.ports.tracker.MirrorState`."""

    def __init__(self, database: Database, sink: str) -> None:
        self._database = database
        self._sink = sink

    def cursor(self) -> Cursor | None:
        """See the port."""
        with self._database.reading() as connection:
            row = connection.execute(select(_cursor).where(_cursor.c.sink == self._sink)).one_or_none()
        if row is None:
            return None
        parcel = None if row.outbox is None else load(Parcel, row.outbox)
        return Cursor(row.events_seq, row.points_seq, row.choice, parcel)

    def save(self, cursor: Cursor | None, runs: Sequence[Mirrored] = ()) -> None:
        """See the port."""
        rows = [self._row(run) for run in runs]
        with self._database.writing("mirror") as connection:
            if rows:
                connection.execute(_UPSERT_RUN, rows)
            if cursor is not None:
                outbox = None if cursor.parcel is None else dump(cursor.parcel)
                values = {"sink": self._sink, "events_seq": cursor.events_seq, "points_seq": cursor.points_seq}
                connection.execute(_UPSERT_CURSOR, {**values, "choice": cursor.choice, "outbox": outbox})

    def run(self, job: str) -> Mirrored | None:
        """See the port."""
        query = select(_run).where(_run.c.sink == self._sink, _run.c.job == job)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _mirrored(row)

    def unfinished(self) -> list[Mirrored]:
        """See the port."""
        query = select(_run).where(_run.c.sink == self._sink, _run.c.unfinished.is_(True)).order_by(_run.c.job)
        with self._database.reading() as connection:
            return [_mirrored(row) for row in connection.execute(query)]

    def refused(self) -> list[str]:
        """See the port."""
        query = select(_run.c.job).where(_run.c.sink == self._sink, _run.c.fault.is_not(None))
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def forget(self, job: str) -> None:
        """See the port."""
        with self._database.writing("mirror") as connection:
            connection.execute(delete(_run).where(_run.c.sink == self._sink, _run.c.job == job))

    def _row(self, run: Mirrored) -> dict[str, object]:
        return {
            "sink": self._sink,
            "job": run.job,
            "ref": run.ref,
            "url": run.url,
            "told": None if run.told is None else dump(run.told),
            "kept": json.dumps(dict(run.kept)),
            "mark": run.mark,
            "fill": json.dumps([run.fill_upto, run.fill_after, run.found, run.settled]),
            "fault": run.fault,
            "unfinished": run.unfinished,
        }


def _mirrored(row: Row[tuple[object, ...]]) -> Mirrored:
    upto, after, found, settled = json.loads(row.fill)
    told = None if row.told is None else load(Run, row.told)
    position = None if after is None else tuple(after)
    kept = json.loads(row.kept)
    return Mirrored(row.job, row.ref, row.url, told, kept, row.mark, upto, position, found, settled, row.fault)
