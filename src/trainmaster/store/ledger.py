"""The ledger's tables. They are written only in the transaction of the events that cause the entries."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, case, cast, select, update

from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Moved, Payer, Rate, Repeated
from trainmaster.ports.store import MS_MAX, ChargeQuery, NewEvent
from trainmaster.store import schema
from trainmaster.store.database import Database, upsert
from trainmaster.store.projections import storable

_PAGE = 2000
_charge, _balance = schema.charge, schema.balance
_UPSERT_CHARGE = upsert(_charge, ["job", "attempt", "pool"])
_UPSERT_BALANCE = upsert(_balance, ["project", "member"])
_COLUMNS = (
    _charge.c.job, _charge.c.attempt, _charge.c.from_ms, _charge.c.until_ms, _charge.c.lost_from_ms,
    _charge.c.project, _charge.c.member, _charge.c.work, _charge.c.experiment,
    _charge.c.pool, _charge.c.gpu_milli, _charge.c.cpu_milli, _charge.c.price, _charge.c.currency,
)  # fmt: skip
_BEGUN = cast(bindparam("at_ms"), BigInteger)
_BY = cast(bindparam("by_ms"), BigInteger)
_CLOSE = (
    update(_charge)
    .where(_charge.c.job == bindparam("of_job"), _charge.c.attempt == bindparam("of_attempt"))
    .values(until_ms=bindparam("ended_ms"))
)
_LOSE_ALL = (
    update(_charge)
    .where(_charge.c.job == bindparam("of_job"))
    .where(_charge.c.attempt > bindparam("kept"), _charge.c.attempt < bindparam("by"))
    .values(lost_from_ms=_charge.c.from_ms)
)
_LOSE_REST = (
    update(_charge)
    .where(_charge.c.job == bindparam("of_job"), _charge.c.attempt == bindparam("kept"))
    .where((_charge.c.lost_from_ms.is_(None)) | (_charge.c.lost_from_ms > _BEGUN))
    .values(lost_from_ms=_BEGUN)
)
_MOVE = (
    update(_charge)
    .where(_charge.c.job == bindparam("of_job"))
    .values(
        from_ms=_charge.c.from_ms + _BY,
        until_ms=case((_charge.c.until_ms == MS_MAX, MS_MAX), else_=_charge.c.until_ms + _BY),
        lost_from_ms=_charge.c.lost_from_ms + _BY,
    )
)


class LedgerReader:
    """Reads the ledger: part of `trainmaster.ports.store.EventStore`."""

    _database: Database

    def charges(self, query: ChargeQuery) -> Iterator[Charge]:
        """See the port. Linear in charges that ended in the period or later, or in one job's attempts."""
        read = _Reader().read
        with self._database.reading() as connection:
            for rows in connection.execute(_wanted(query)).partitions(_PAGE):
                yield from map(read, rows)

    def balances(self) -> tuple[Balance, ...]:
        """See the port."""
        with self._database.reading() as connection:
            return read_balances(connection)


def write_ledger(connection: Connection, events: Iterable[NewEvent]) -> None:
    """Write the ledger entries of events, in order."""
    for new in events:
        for entry in new.entries:
            _write(connection, entry)


def read_balances(connection: Connection) -> tuple[Balance, ...]:
    """Balances of all members."""
    columns = (_balance.c.project, _balance.c.member, _balance.c.service, _balance.c.at_s)
    return tuple(Balance(*row) for row in connection.execute(select(*columns).order_by(*columns[:2])))


def _write(connection: Connection, entry: Entry) -> None:
    match entry:
        case Charge():
            connection.execute(_UPSERT_CHARGE, _row(entry))
        case Closed(job, attempt, until_ms):
            connection.execute(_CLOSE, {"of_job": job, "of_attempt": attempt, "ended_ms": until_ms})
        case Repeated(job, by, kept, at_ms):
            connection.execute(_LOSE_ALL, {"of_job": job, "kept": kept, "by": by})
            connection.execute(_LOSE_REST, {"of_job": job, "kept": kept, "at_ms": at_ms})
        case Moved(job, by_ms):
            connection.execute(_MOVE, {"of_job": job, "by_ms": by_ms})
        case Balance():
            values = {**entry._asdict(), "project": storable(entry.project), "member": storable(entry.member)}
            connection.execute(_UPSERT_BALANCE, values)


def _row(charge: Charge) -> dict[str, object]:
    payer, rate = charge.payer, charge.rate
    return {
        "job": charge.job,
        "attempt": charge.attempt,
        "pool": storable(rate.pool),
        **{name: storable(value) for name, value in payer._asdict().items()},
        "gpu_milli": rate.gpu_milli,
        "cpu_milli": rate.cpu_milli,
        "price": rate.price,
        "currency": storable(rate.currency),
        "from_ms": charge.from_ms,
        "until_ms": MS_MAX if charge.until_ms is None else charge.until_ms,
        "lost_from_ms": charge.lost_from_ms,
    }


class _Reader:
    """Converts rows into charges. Equal payers and rates share one object."""

    def __init__(self) -> None:
        self._payers: dict[tuple[str, ...], Payer] = {}
        self._rates: dict[tuple[Any, ...], Rate] = {}

    def read(self, row: Sequence[Any]) -> Charge:
        """One row with the columns of `_COLUMNS`."""
        job, attempt, from_ms, until_ms, lost_from_ms = row[:5]
        whose, what = tuple(row[5:9]), tuple(row[9:])
        payer = self._payers.get(whose) or self._payers.setdefault(whose, Payer(*whose))
        rate = self._rates.get(what) or self._rates.setdefault(what, Rate(*what))
        return Charge(job, attempt, payer, rate, from_ms, None if until_ms == MS_MAX else until_ms, lost_from_ms)


def _wanted(query: ChargeQuery) -> Select[Any]:
    wanted: Sequence[Any] = [_charge.c.until_ms > query.from_ms, _charge.c.from_ms < query.until_ms]
    if query.project is not None:
        wanted = [*wanted, _charge.c.project == query.project]
    if query.job is not None:
        wanted = [*wanted, _charge.c.job == query.job]
    return select(*_COLUMNS).where(*wanted)
