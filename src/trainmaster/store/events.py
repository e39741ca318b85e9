"""The event log and its projections: written by control alone, readable by any process."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select

from trainmaster import troubles
from trainmaster.errors import OperationError
from trainmaster.lifecycle.clock_steps import moved_attempt
from trainmaster.model.events import ClockSet
from trainmaster.model.job import Attempt, Job
from trainmaster.model.nodes import Node
from trainmaster.ports.store import JobQuery, Live, NewEvent, Recorded, Unread, forgotten
from trainmaster.reserve import nothing, persistently
from trainmaster.store import schema
from trainmaster.store.codec import dump, load, load_event
from trainmaster.store.database import Database, upsert
from trainmaster.store.job_index import ASKED, JobFinder, page
from trainmaster.store.ledger import LedgerReader, read_balances, write_ledger
from trainmaster.store.projections import RecordReader, read_rules, write_labels, write_record

GENESIS = "0" * 64
Encoded = tuple[str | None, int | None, str, str]  # job, attempt, type, data

_event, _job, _attempt, _node, _head = schema.event, schema.job, schema.attempt, schema.node, schema.head
_over = schema.over
_UPSERT_JOB = upsert(_job, ["id"])
_UPSERT_ATTEMPT = upsert(_attempt, ["job", "number"])
_UPSERT_NODE = upsert(_node, ["name"])
_UPSERT_HEAD = upsert(_head, ["id"])
_SELECT_JOB = select(_job.c.data).where(_job.c.id == bindparam("job"))
_SELECT_HEAD = select(_head.c.last_seq, _head.c.last_now_s, _head.c.last_hash, _head.c.inbox_cursor).where(_head.c.id == 1)


_DECODED = 500  # jobs that are kept as they were decoded, about 10 MB
_QUOTED_MAX = 60  # characters of a damaged row


class ChainRow(NamedTuple):
    """One event as stored, not decoded, so that damaged rows can still be inspected."""

    seq: int
    now_s: float
    job: str | None
    attempt: int | None
    type: str
    data: str
    hash: str


class Head(NamedTuple):
    """The end of the log after the last transaction."""

    last_seq: int
    last_now_s: float
    last_hash: str
    inbox_cursor: int


def chain_hash(previous: str, row: ChainRow) -> str:
    """The hash of an event: SHA-256 of its predecessor's hash and the canonical JSON of the row without its hash."""
    begin = json.dumps([row.seq, row.now_s, row.job, row.attempt, row.type], separators=(",", ":"))
    return hashlib.sha256(f"{previous}{begin[:-1]},{row.data}]".encode()).hexdigest()


class SqlEventStore(JobFinder, RecordReader, LedgerReader):
    """`trainmaster.ports.store.EventStore`, `trainmaster.ports.index.JobIndex`. Raises: OperationError for an unusable file."""

    def __init__(self, path: Path, read_only: bool = False, release: Callable[[], bool] = nothing) -> None:
        """`release`: on a full disk, frees some reserved space for the log; False if there is none."""
        super().__init__(Database("events", path, read_only))
        self._release = release

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def version(self) -> str:
        """See `Database.version`."""
        return self._database.version()

    def append(
        self, now_s: float, events: Sequence[NewEvent], jobs: Mapping[str, Job], nodes: Sequence[Node], inbox_cursor: int
    ) -> int:
        """See the port. Linear in the arguments, independent of the log."""
        job_rows = [_job_row(job) for job in jobs.values()]
        attempts = [(new.job, new.ended) for new in events if new.ended is not None]
        steps = [(new.job, new.event.by_s) for new in events if isinstance(new.event, ClockSet)]
        attempts += [(job.id, job.attempt) for job in jobs.values() if job.attempt is not None]
        attempt_rows = [{"job": job, "number": attempt.number, "data": dump(attempt)} for job, attempt in attempts]
        node_rows = [{"name": node.name, "data": dump(node)} for node in nodes]
        encoded = [(new.job, new.attempt, type(new.event).__name__, dump(new.event)) for new in events]
        projections = ((_UPSERT_JOB, job_rows), (_UPSERT_ATTEMPT, attempt_rows), (_UPSERT_NODE, node_rows))

        def write() -> int:
            with self._database.writing("event") as connection:
                head = _read_head(connection)
                rows, last_hash = _chained(head, float(now_s), encoded)
                for moved, by_s in steps:
                    _move_attempts(connection, moved, by_s)
                for statement, given in ((insert(_event), rows), *projections):
                    if given:
                        connection.execute(statement, given)
                _write_over(connection, events)
                write_record(connection, enumerate(events, head.last_seq + 1))
                write_labels(connection, events, jobs)
                write_ledger(connection, events)
                last_now_s = float(now_s) if steps else max(float(now_s), head.last_now_s)
                new_head = Head(head.last_seq + len(rows), last_now_s, last_hash, inbox_cursor)
                connection.execute(_UPSERT_HEAD, {"id": 1, **new_head._asdict()})
            return new_head.last_seq

        return persistently(write, self._release)

    def load_live(self) -> Live:
        """See the port. Linear in live jobs, nodes and members; reads a bounded number of ended jobs."""
        with self._database.reading() as connection:
            head = _read_head(connection)
            jobs = connection.scalars(select(_job.c.data).where(_job.c.live.is_(True)).order_by(_job.c.seq)).all()
            nodes, balances = _read_nodes(connection), read_balances(connection)
            rules = read_rules(connection)
            ended, over = _read_over(connection)
        return Live(
            jobs=tuple(map(_loaded, jobs)),
            nodes=tuple(nodes),
            last_seq=head.last_seq,
            last_now_s=head.last_now_s,
            inbox_cursor=head.inbox_cursor,
            rules=rules,
            balances=balances,
            over=tuple(over),
            ended=ended,
        )

    def over_since(self, count: int) -> tuple[int, list[Job]]:
        """See the port. At most `2 * OVER_MAX` jobs are read."""
        with self._database.reading() as connection:
            return _read_over(connection, count)

    def job(self, job_id: str) -> Job | None:
        """See the port."""
        with self._database.reading() as connection:
            data = connection.scalar(_SELECT_JOB, {"job": job_id})
        return None if data is None else _loaded(data)

    def jobs_by_id(self, ids: Sequence[str]) -> dict[str, Job]:
        """See the port. Linear in `ids`, a few microseconds each."""
        found: dict[str, Job] = {}
        with self._database.reading() as connection:
            for at in range(0, len(ids), ASKED):
                query = select(_job.c.id, _job.c.data).where(_job.c.id.in_(ids[at : at + ASKED]))
                found.update((id, _loaded(data)) for id, data in connection.execute(query))
        return found

    def jobs(self, query: JobQuery) -> list[Job]:
        """See the port. A page of one state, project, experiment, name, owner or tag costs the same however many jobs there
        are. Where several of these are given, it is linear in the jobs that match one of them."""
        with self._database.reading() as connection:
            rows = connection.scalars(page(connection, query)).all()
        return list(map(_decoded if len(rows) <= _DECODED else _loaded, rows))

    def changed_since(self, after_seq: int) -> list[Job]:
        """See the port. Linear in the events after `after_seq`."""
        told = select(_event.c.job).where(_event.c.seq > after_seq, _event.c.job.is_not(None)).distinct()
        with self._database.reading() as connection:
            found = connection.scalars(select(_job.c.data).where(_job.c.id.in_(told))).all()
        return list(map(_loaded, found))

    def attempts(self, job_id: str) -> list[Attempt]:
        """See the port."""
        with self._database.reading() as connection:
            found = connection.scalars(
                select(_attempt.c.data).where(_attempt.c.job == job_id).order_by(_attempt.c.number)
            ).all()
        return [load(Attempt, data) for data in found]

    def nodes(self) -> list[Node]:
        """See the port."""
        with self._database.reading() as connection:
            return _read_nodes(connection)

    def events(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded]:
        """See the port."""
        return [
            Recorded(row.seq, row.now_s, row.job, row.attempt, load_event(row.type, row.data), row.hash)
            for row in self.chain(after_seq, limit, job)
        ]

    def told(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded | Unread]:
        """See the port."""
        return [_told(row) for row in self.chain(after_seq, limit, job)]

    def chain(self, after_seq: int, limit: int, job: str | None = None) -> list[ChainRow]:
        """Like `events`, without decoding; read by `verify_chain`."""
        query = select(_event).where(_event.c.seq > after_seq).order_by(_event.c.seq).limit(limit)
        if job is not None:
            query = query.where(_event.c.job == job)
        with self._database.reading() as connection:
            return [ChainRow(*row) for row in connection.execute(query)]

    def dated_after(self, now_s: float) -> list[str]:
        """See the port. Linear in the matching events."""
        last = select(_event.c.seq).where(_event.c.now_s <= now_s).order_by(_event.c.seq.desc()).limit(1).scalar_subquery()
        query = select(_event.c.job).distinct().where(_event.c.seq > func.coalesce(last, 0), _event.c.job.is_not(None))
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def head(self) -> Head:
        """The end of the log."""
        with self._database.reading() as connection:
            return _read_head(connection)


def _chained(head: Head, now_s: float, encoded: Sequence[Encoded]) -> tuple[list[dict[str, object]], str]:
    """The rows to append after the head, and the hash of the last one."""
    seq, last_hash, rows = head.last_seq, head.last_hash, []
    for job, attempt, kind, data in encoded:
        seq += 1
        row = ChainRow(seq, now_s, job, attempt, kind, data, "")
        last_hash = chain_hash(last_hash, row)
        rows.append(row._replace(hash=last_hash)._asdict())
    return rows, last_hash


def _told(row: ChainRow) -> Recorded | Unread:
    try:
        return Recorded(row.seq, row.now_s, row.job, row.attempt, load_event(row.type, row.data), row.hash)
    except ValueError as error:
        return Unread(row.seq, row.now_s, row.job, row.attempt, row.type, str(error).splitlines()[0])


def _read_head(connection: Connection) -> Head:
    row = connection.execute(_SELECT_HEAD).one_or_none()
    return Head(0, 0.0, GENESIS, 0) if row is None else Head(*row)


def _move_attempts(connection: Connection, job: str | None, by_s: float) -> None:
    """After a step of the clock, move a job's earlier attempts. The current one moves with the job."""
    rows = connection.execute(select(_attempt).where(_attempt.c.job == job)).all()
    moved = [{"job": row.job, "number": row.number, "data": dump(moved_attempt(load(Attempt, row.data), by_s))} for row in rows]
    if moved:
        connection.execute(_UPSERT_ATTEMPT, moved)


def _read_nodes(connection: Connection) -> list[Node]:
    return [load(Node, data) for data in connection.scalars(select(_node.c.data).order_by(_node.c.name))]


def _last_over(connection: Connection) -> int:
    return connection.scalar(select(func.max(_over.c.number))) or 0


def _read_over(connection: Connection, count: int = 0) -> tuple[int, list[Job]]:
    """The number of jobs that ran and are over, and those of them that are still used, without the first `count`."""
    ended = _last_over(connection)
    if ended <= count:
        return ended, []
    remembered = _over.join(_job, _job.c.id == _over.c.job)
    used = _over.c.number > max(count, forgotten(ended))
    query = select(_job.c.data).select_from(remembered).where(used).order_by(_over.c.number)
    jobs = []
    for data in connection.scalars(query):
        try:
            jobs.append(_loaded(data))
        except OperationError as error:  # estimates do without it, and no other job waits for its repair
            troubles.say("damaged job", f"{error}; {error.hint}")
    return ended, jobs


def _write_over(connection: Connection, events: Sequence[NewEvent]) -> None:
    """Number the ended jobs in the order of the log."""
    ended = [new.job for new in events if new.over]
    if ended:
        first = _last_over(connection) + 1
        connection.execute(insert(_over), [{"number": number, "job": job} for number, job in enumerate(ended, first)])


@lru_cache(_DECODED)
def _decoded(data: str) -> Job:
    """A listed job. Nobody changes one, and most of a list is as it was the last time."""
    return _loaded(data)


def _loaded(data: str) -> Job:
    """Raises: OperationError if the row is damaged."""
    try:
        return load(Job, data)
    except ValueError as error:
        what = f"the record of a job in the event log cannot be read: it begins with {data[:_QUOTED_MAX]!r}"
        advice = "tm doctor --replay names what is damaged, and tm restore DIR brings back a backup"
        raise OperationError(what, advice) from error


def _job_row(job: Job) -> dict[str, object]:
    number = job.id.rpartition("-")[2]
    return {
        "seq": job.seq,
        "id": job.id,
        "number": int(number) if number.isdecimal() else 0,
        "project": job.spec.project,
        "experiment": job.spec.experiment,
        "name": job.spec.name,
        "state": job.state.value,
        "live": not job.state.ended or bool(job.deleting) or bool(job.clearing),
        "data": dump(job),
    }
