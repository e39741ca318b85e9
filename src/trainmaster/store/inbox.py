"""The inbox: accepted commands and reports, written by the api and drained by control."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, select

from trainmaster.errors import ConflictError
from trainmaster.model.commands import (
    AgentReport,
    Command,
    ConfigureCluster,
    SetNodeState,
    SubmitJob,
    Unreadable,
    ends_something,
)
from trainmaster.model.ids import AgentKey, job_id
from trainmaster.ports.store import InboxRow, NewRow
from trainmaster.reserve import nothing, persistently
from trainmaster.store import schema
from trainmaster.store.codec import dump, load_command
from trainmaster.store.database import Database, upsert

COMMANDS_KEPT_S = 7 * 24 * 3600.0

_FRESH_MAX = 20_000  # commands
_KEYS_PER_QUERY = 500  # SQLite allows 32,766 variables; short statements stay in the cache
_ROWS = ""  # name of the counter of inbox rows; no experiment has this name

_inbox, _counter, _answer = schema.inbox, schema.counter, schema.answer
_ALL = (_inbox.c.seq, _inbox.c.key, _inbox.c.job, _inbox.c.received_s, _inbox.c.type, _inbox.c.data)
_SET_COUNTER = upsert(_counter, ["name"])
_DRAIN = select(*_ALL).where(_inbox.c.seq > bindparam("after")).order_by(_inbox.c.seq).limit(bindparam("most"))


class SqlInbox:
    """`trainmaster.ports.store.Inbox`. Raises: OperationError if the file cannot be used."""

    def __init__(self, path: Path, read_only: bool = False, release: Callable[[], bool] = nothing) -> None:
        """`release`: on a full disk, frees some reserved space for commands that end something; False if there is none."""
        self._release = release
        self._database = Database("inbox", path, read_only)
        self._fresh: dict[int, Command | Unreadable] = {}  # accepted here and not read yet: saves decoding them

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def version(self) -> str:
        """See `Database.version`."""
        return self._database.version()

    def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """See the port. A row without a job (such as a node's state) returns an empty id."""
        if not rows:
            return []
        ending = all(ends_something(row.command) for row in rows)
        return persistently(lambda: self._accept(rows), self._release if ending else nothing)

    def _accept(self, rows: Sequence[NewRow]) -> list[str]:
        with self._database.writing("inbox") as connection:
            known = _jobs_of_keys(connection, [row.key for row in rows])
            known |= _answered(connection, _asked(rows))
            new = {row.key: row for row in reversed(rows) if row.key not in known}  # of equal keys, the first counts
            new = {row.key: new[row.key] for row in rows if row.key in new}
            drawn = Counter(_experiment(row) for row in new.values() if isinstance(row.command, SubmitJob))
            next_number = _draw(connection, {_ROWS: len(new), **drawn}) if new else {}
            values, fresh, kept = [], dict[int, Command | Unreadable](), list[dict[str, object]]()
            for row in new.values():
                command = row.command
                if isinstance(command, SubmitJob):
                    experiment = _experiment(row)
                    command = replace(command, job=job_id(experiment, next_number[experiment]))
                    next_number[experiment] += 1
                known[row.key] = _job_of(command)
                values.append(_values(row, command, next_number[_ROWS]))
                if row.asked is not None:
                    kept.append({"key": _short(row.key), "asked": row.asked, "job": _job_of(command)})
                if not isinstance(command, AgentReport):
                    fresh[next_number[_ROWS]] = command
                next_number[_ROWS] += 1
            if values:
                connection.execute(insert(_inbox), values)
            if kept:
                connection.execute(insert(_answer), kept)
        if len(self._fresh) + len(fresh) > _FRESH_MAX:
            self._fresh = {}
        self._fresh |= fresh
        return [known[row.key] for row in rows]

    def answered(self, asked: Mapping[str, bytes]) -> dict[str, str]:
        """See the port."""
        with self._database.reading() as connection:
            return _answered(connection, asked)

    def drain(self, after_seq: int, limit: int) -> list[InboxRow]:
        """See the port."""
        with self._database.reading() as connection:
            return _rows(connection, _DRAIN, {"after": after_seq, "most": limit})

    def pending(self, after_seq: int, job: str | None = None) -> list[InboxRow]:
        """See the port."""
        query = select(*_ALL).where(_inbox.c.seq > after_seq, _inbox.c.report.is_(False)).order_by(_inbox.c.seq)
        if job is not None:
            query = query.where(_inbox.c.job == job)
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        fresh = self._fresh  # a writer may replace the dictionary meanwhile
        rows = [
            InboxRow(seq, key, of_job, received_s, fresh.pop(seq) if seq in fresh else _command(kind, data))
            for seq, key, of_job, received_s, kind, data in found
        ]
        return [row for row in rows if not isinstance(row.command, Unreadable)]

    def trim(self, taken_seq: int, now_s: float) -> None:
        """See the port."""
        old = _inbox.c.received_s < now_s - COMMANDS_KEPT_S
        with self._database.writing() as connection:
            connection.execute(delete(_inbox).where(_inbox.c.seq <= taken_seq, _inbox.c.report.is_(True)))
            # First find where the old rows end: otherwise each trim would scan a week of commands.
            old_seq = connection.scalar(select(func.max(_inbox.c.seq)).where(old)) or 0
            commands = (_inbox.c.seq <= min(taken_seq, old_seq), _inbox.c.report.is_(False))
            connection.execute(delete(_inbox).where(*commands, old))

    def keep_ahead(self, seq: int, numbers: Mapping[str, int]) -> None:
        """Never draw a sequence number up to `seq`, or a job number up to its experiment's in `numbers`.

        The api calls this at its start with control's cursor and the existing job numbers. An inbox that was lost or restored
        from an older copy then assigns nothing twice. Otherwise this changes nothing.
        """
        floors = {_ROWS: seq, **numbers}
        with self._database.reading() as connection:
            last = _read_counters(connection, list(floors))
        if all(last.get(name, 0) >= floor for name, floor in floors.items()):
            return
        with self._database.writing() as connection:
            last = _read_counters(connection, list(floors))
            raised = [{"name": name, "last": floor} for name, floor in floors.items() if last.get(name, 0) < floor]
            if raised:
                connection.execute(_SET_COUNTER, raised)


def _experiment(row: NewRow) -> str:
    if row.experiment is not None or not isinstance(row.command, SubmitJob):
        return row.experiment or ""
    return row.command.spec.experiment


def _job_of(command: Command) -> str:
    if isinstance(command, AgentReport):
        return AgentKey.parse(command.key).job
    return "" if isinstance(command, SetNodeState | ConfigureCluster) else command.job


def _values(row: NewRow, command: Command, seq: int) -> dict[str, object]:
    return {
        "seq": seq,
        "key": row.key,
        "job": _job_of(command),
        "type": type(command).__name__,
        "report": isinstance(command, AgentReport),
        "data": dump(command),
        "received_s": row.received_s,
    }


def _rows(connection: Connection, query: Select[Any], values: Mapping[str, int] | None = None) -> list[InboxRow]:
    return [
        InboxRow(seq, key, job, received_s, _command(kind, data))
        for seq, key, job, received_s, kind, data in connection.execute(query, values)
    ]


def _command(kind: str, data: str) -> Command | Unreadable:
    """Decode one row. An unreadable row must not block those after it."""
    try:
        return load_command(kind, data)
    except ValueError as error:
        return Unreadable(kind, str(error).splitlines()[0])  # further lines may quote the row


def _jobs_of_keys(connection: Connection, keys: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        part = keys[start : start + _KEYS_PER_QUERY]
        for key, job in connection.execute(select(_inbox.c.key, _inbox.c.job).where(_inbox.c.key.in_(part))):
            found[key] = job
    return found


def _short(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:16]


def _asked(rows: Sequence[NewRow]) -> dict[str, bytes]:
    """The request digest under each key. Raises: ConflictError if two rows have different requests under one key."""
    found: dict[str, bytes] = {}
    for row in rows:
        if row.asked is not None and found.setdefault(row.key, row.asked) != row.asked:
            raise _reused("another request in the same batch")
    return found


def _answered(connection: Connection, asked: Mapping[str, bytes]) -> dict[str, str]:
    """See `Inbox.answered`."""
    found: dict[str, str] = {}
    keys = {_short(key): key for key in asked}
    shorts = list(keys)
    for start in range(0, len(shorts), _KEYS_PER_QUERY):
        part = shorts[start : start + _KEYS_PER_QUERY]
        for short, before, job in connection.execute(select(_answer).where(_answer.c.key.in_(part))):
            if before is not None and before != asked[keys[short]]:
                raise _reused(f"another request, which made {job}")
            found[keys[short]] = job
    return found


def _reused(by: str) -> ConflictError:
    return ConflictError(f"this Idempotency-Key was used for {by}", "another request needs another key")


def _read_counters(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(names), _KEYS_PER_QUERY):
        part = names[start : start + _KEYS_PER_QUERY]
        for name, last in connection.execute(select(_counter.c.name, _counter.c.last).where(_counter.c.name.in_(part))):
            found[name] = last
    return found


def _draw(connection: Connection, counts: Mapping[str, int]) -> dict[str, int]:
    """Draw numbers from each counter. Returns the first number of each."""
    last = _read_counters(connection, list(counts))  # safe: the transaction holds the write lock
    connection.execute(_SET_COUNTER, [{"name": name, "last": last.get(name, 0) + count} for name, count in counts.items()])
    return {name: last.get(name, 0) + 1 for name in counts}
