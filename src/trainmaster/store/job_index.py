"""Finds jobs by what a person types, lists pages of them, and counts jobs for screens."""

import difflib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, exists, func, select, union_all

from trainmaster.errors import ConflictError, NotFoundError, UsageError
from trainmaster.model.job import State
from trainmaster.ports.store import JobQuery
from trainmaster.store import schema
from trainmaster.store.database import Database
from trainmaster.store.projections import OWNER, TAG

LAST, LAST_FAILED = "@last", "@last-failed"

_LISTED = 5  # ids named in an error
ASKED = 500  # ids per query
_RECENT = 200  # newest jobs that are searched for similar names
_BEYOND = "\U0010ffff"  # sorts after every character of an id
_SEQ_MAX = 2**63 - 1


_ENDING = ("AttemptEnded", "CancelRequested", "StartRefused")  # events by which a job may end

_job, _label, _event = schema.job, schema.label, schema.event
# Built once: a request may name thousands of jobs, and building a query costs more than running it.
_NEWEST = select(_job.c.id).order_by(_job.c.seq.desc()).limit(1)
_BY_ID = select(_job.c.id).where(_job.c.id == bindparam("wanted")).limit(1)
_BY_NAME = _NEWEST.where(_job.c.name == bindparam("wanted"))
_BY_STATE = _NEWEST.where(_job.c.state == bindparam("wanted"))
_DATED = select(_job.c.seq, _job.c.data).where(_job.c.seq >= bindparam("from_seq")).order_by(_job.c.seq).limit(1)
_ENDS = select(*(select(end(_job.c.seq)).scalar_subquery() for end in (func.min, func.max)))  # both in one would be a scan
_BEGINNING = (
    select(_job.c.id)
    .where(_job.c.id >= bindparam("wanted"), _job.c.id < bindparam("beyond"))
    .order_by(_job.c.id)
    .limit(_LISTED + 1)
)


class JobFinder:
    """Reads that need no decoding: `trainmaster.ports.index.JobIndex`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, ref: str, waiting: Sequence[tuple[str, str]] = (), near: bool = True) -> str:
        """The id for `ref`: an id, a job's name (its newest job), a unique prefix of an id, `@last`, or `@last-failed`.

        `waiting` are (id, name) of accepted jobs that control has not processed, in order of submission: newer than all
        others. `near`: suggest similar ids if there is none.
        Raises: NotFoundError, ConflictError for an ambiguous prefix, UsageError for an unknown `@` reference.
        """
        newest_first = list(reversed(waiting))
        with self._database.reading() as connection:
            if ref.startswith("@"):
                return _resolve_special(connection, ref, newest_first)
            if any(job_id == ref for job_id, _ in newest_first) or _first(connection, _BY_ID, ref):
                return ref
            of_name = [job_id for job_id, name in newest_first if name == ref]
            named = of_name[0] if of_name else _first(connection, _BY_NAME, ref)
            if named is not None:
                return named
            beginning = [job_id for job_id, _ in newest_first if ref and job_id.startswith(ref)]
            beginning += _beginning(connection, ref) if ref else []
            if len(set(beginning)) == 1:
                return beginning[0]
            if beginning:
                raise ConflictError(
                    f"{ref!r} could be {_listing(list(dict.fromkeys(beginning)))}", hint="give more of the id, or all of it"
                )
            raise _not_found(connection, ref, newest_first if near else None)

    def known(self, ids: Sequence[str]) -> set[str]:
        """The members of `ids` that are complete ids of jobs."""
        found: set[str] = set()
        with self._database.reading() as connection:
            for at in range(0, len(ids), ASKED):
                found.update(connection.scalars(select(_job.c.id).where(_job.c.id.in_(ids[at : at + ASKED]))))
        return found

    def live_counts(self) -> dict[State, int]:
        """The number of jobs in each state that is not over, zeros included."""
        going = [state for state in State if not state.ended]
        query = select(_job.c.state, func.count()).where(_job.c.state.in_(going)).group_by(_job.c.state)
        with self._database.reading() as connection:
            found = {row[0]: row[1] for row in connection.execute(query)}
        return {state: found.get(state.value, 0) for state in going}

    def ends_after(self, after_seq: int, limit: int) -> tuple[list[str], int]:
        """See the port. Linear in the events after `after_seq`."""
        ends = select(_event.c.seq, _event.c.job).where(_event.c.seq > after_seq, _event.c.type.in_(_ENDING))
        with self._database.reading() as connection:
            last_seq = connection.scalar(select(func.max(_event.c.seq))) or 0
            rows = connection.execute(ends.where(_event.c.seq <= last_seq).order_by(_event.c.seq).limit(limit)).all()
        jobs = list(dict.fromkeys(job for _, job in rows))
        return jobs, (rows[-1][0] if len(rows) == limit else last_seq)

    def numbers(self) -> dict[str, int]:
        """The highest job number of each experiment. With `Inbox.keep_ahead`, no id is ever assigned twice."""
        query = select(_job.c.experiment, func.max(_job.c.number)).group_by(_job.c.experiment)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}


def _first(connection: Connection, query: Select[Any], wanted: str | None = None) -> str | None:
    found: str | None = connection.scalar(query, {} if wanted is None else {"wanted": wanted})
    return found


def _beginning(connection: Connection, prefix: str) -> list[str]:
    return list(connection.scalars(_BEGINNING, {"wanted": prefix, "beyond": prefix + _BEYOND}))


def _listing(ids: list[str]) -> str:
    shown = ids[:_LISTED]
    return ", ".join(shown) + (" and others" if len(ids) > len(shown) else "")


def _resolve_special(connection: Connection, ref: str, newest_first: list[tuple[str, str]]) -> str:
    if ref == LAST:
        found = newest_first[0][0] if newest_first else _first(connection, _NEWEST)
        missing = "there are no jobs yet"
    elif ref == LAST_FAILED:
        found = _first(connection, _BY_STATE, State.FAILED.value)
        missing = "no job has failed"
    else:
        raise UsageError(f"{ref!r} is not a reference to a job", hint=f"write {LAST}, {LAST_FAILED}, an id, or a name")
    if found is None:
        raise NotFoundError(f"{ref}: {missing}", hint="`tm ps --all` lists all jobs")
    return found


def _not_found(connection: Connection, ref: str, newest_first: list[tuple[str, str]] | None) -> NotFoundError:
    """`newest_first`: accepted jobs to search for similar names as well; None: do not search."""
    if newest_first is None:
        return NotFoundError(f"there is no job {ref!r}", hint="`tm ps --all` lists all jobs")
    recent = connection.execute(select(_job.c.id, _job.c.name).order_by(_job.c.seq.desc()).limit(_RECENT)).all()
    known = {word: None for job_id, name in [*newest_first[:_RECENT], *recent] for word in (job_id, name)}
    near = difflib.get_close_matches(ref, list(known), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "`tm ps --all` lists all jobs"
    return NotFoundError(f"there is no job {ref!r}", hint=hint)


def page(connection: Connection, query: JobQuery) -> Select[Any]:
    """The statement for one page of jobs, newest first."""
    low = 0 if query.since_s is None else _first_since(connection, query.since_s)
    high = _SEQ_MAX if query.before_seq is None else query.before_seq
    if query.until_s is not None:
        high = min(high, _first_since(connection, query.until_s))
    return _page(query, low, high)


def _first_since(connection: Connection, time_s: float) -> int:
    """The number of the first job that was accepted at `time_s` or later: a binary search, since numbers are in that order.

    (A clock that was set back leaves jobs of the repeated time out of order, and then the search is off by those.)
    """
    low, high = connection.execute(_ENDS).one()
    if low is None:
        return 0
    high += 1
    while low < high:
        middle = (low + high) // 2
        seq, data = connection.execute(_DATED, {"from_seq": middle}).one()
        if json.loads(data)["created_s"] < time_s:
            low = seq + 1
        else:
            high = middle
    return int(low)


@lru_cache(64)
def _page(query: JobQuery, low: int, high: int) -> Select[Any]:
    """One page of the jobs from number `low` on, and below `high`. Clients ask the same again and again, and to build the
    statement is a third of its cost.

    Each state is read as a page of its own from an index that ends in seq, and the result is the newest rows of all. So "the
    newest 50 that failed or were cancelled" costs at most 50 rows per state, however rare either state is. The jobs of an
    owner, with a tag or of a name are read from an index of that, and the other conditions are checked for each of them.
    """
    labels: list[tuple[str, str | None]] = [] if query.owner is None else [(OWNER, query.owner)]
    labels += [(TAG + name, value) for name, value in query.tags]
    if labels:
        found = _labelled(query, labels, low, high)
    elif query.name is not None:
        found = _newest(_job.c.seq, query, low, high).where(*_columns(query))
    elif query.states or query.project is not None or query.experiment is not None:
        found = _of_states(query, low, high)
    else:
        found = _newest(_job.c.seq, query, low, high)
    wanted = found.subquery()
    seqs = select(wanted.c.seq).order_by(wanted.c.seq.desc()).limit(query.limit).scalar_subquery()
    return select(_job.c.data).where(_job.c.seq.in_(seqs)).order_by(_job.c.seq.desc())


def _newest(seq: ColumnElement[Any], query: JobQuery, low: int, high: int) -> Select[Any]:
    """The newest numbers of a table that is in order of `seq`."""
    bounds = [seq >= low] if low else []
    bounds += [seq < high] if high < _SEQ_MAX else []
    return select(seq).where(*bounds).order_by(seq.desc()).limit(query.limit)


def _of_states(query: JobQuery, low: int, high: int) -> Any:
    columns = _columns(replace(query, states=()))
    newest = _newest(_job.c.seq, query, low, high).where(*columns)
    states = query.states or tuple(State)
    parts = [newest.where(_job.c.state == state.value).subquery() for state in dict.fromkeys(states)]
    return union_all(*(select(part.c.seq) for part in parts))


def _labelled(query: JobQuery, labels: Sequence[tuple[str, str | None]], low: int, high: int) -> Select[Any]:
    """Jobs with all these labels: those with the first one, by its index, that have the others."""
    first, *others = (_label.alias() for _ in labels)
    (name, value), *rest = labels
    found = _newest(first.c.seq, query, low, high).where(first.c.name == name)
    if value is not None:
        found = found.where(first.c.value == value)
    for one, (name, value) in zip(others, rest, strict=True):
        equal = [one.c.name == name, one.c.seq == first.c.seq, *([] if value is None else [one.c.value == value])]
        found = found.where(exists().where(*equal))
    columns = _columns(query)
    return found.where(exists().where(_job.c.seq == first.c.seq, *columns)) if columns else found


def _columns(query: JobQuery) -> list[ColumnElement[bool]]:
    """The conditions on columns of a job."""
    found: list[ColumnElement[bool]] = [] if not query.states else [_job.c.state.in_([state.value for state in query.states])]
    if query.project is not None:
        found.append(_job.c.project == query.project)
    if query.experiment is not None:
        found.append(_job.c.experiment == query.experiment)
    if query.name is not None and query.name.endswith("*"):
        begin = query.name[:-1]
        found += [_job.c.name >= begin, _job.c.name < begin + _BEYOND]
    elif query.name is not None:
        found.append(_job.c.name == query.name)
    return found
