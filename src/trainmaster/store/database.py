"""One SQLite database file: connections, transactions, and the translation of errors. All SQLite specifics are here.

Each thread uses its own pooled connection. Writers of one process take turns on a lock, because SQLite's own waiting polls.
A reading transaction sees one state, however many queries it makes.
"""

import errno
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    PoolProxiedConnection,
    Table,
    create_engine,
    event,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool
from sqlalchemy.types import String

from trainmaster.errors import DamagedError, DiskFullError, OperationError
from trainmaster.store import schema
from trainmaster.wire import failpoint

BUSY_TIMEOUT_S = 20.0
WAL_LIMIT_BYTES = 64 * 1024 * 1024
_PROBE_BYTES = 256 * 1024
_INCREMENTAL = 2  # SQLite's code of this auto_vacuum mode
_VERSION = table(schema.VERSION_TABLE, Column("version_num", String(32)))


class Database:
    """One database file of the home; `store` is its key in `schema.STORES`.

    `durable`: a commit is on disk when it returns (synchronous=FULL). Otherwise a crash of the machine (not of the process)
    may lose the last commits, never the file. A writer creates missing tables.
    Raises: OperationError if the file is missing (read-only), older or newer than this version, or not a database.
    """

    def __init__(self, store: str, path: Path, read_only: bool = False, durable: bool = True) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self.engine = open_engine(self.path, read_only, durable, store in schema.SHRINKING)
        self._writing = self.engine.execution_options(writes=True)
        self._turn = threading.Lock()
        self._name, self._looking = os.urandom(4).hex(), threading.Lock()
        self._look: PoolProxiedConnection | None = None
        try:
            with translated(self.path):
                self._check_version(store)
        except OperationError:
            self.close()
            raise

    def _check_version(self, store: str) -> None:
        version = read_version(self.engine)
        if version is None and not self.read_only:
            create_tables(self.engine, store)
            version = schema.HEAD
        refuse_unknown_version(version, self.path)
        if version != schema.HEAD:
            raise OperationError(
                f"{self.path} is at revision {version or 'none'}, not {schema.HEAD}", hint="run `tm up`, which migrates it"
            )

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read-only transaction with one consistent state."""
        with translated(self.path), self.engine.connect() as connection:
            yield connection

    def version(self) -> str:
        """Changes with every commit to this file, by any process; never again what it was. A few microseconds.

        Where it cannot be told it is another one at each call.
        """
        try:
            with self._looking:
                if self._look is None:
                    self._look = self.engine.raw_connection()  # kept: a connection is told only what others committed
                cursor = self._look.cursor()
                number = cursor.execute("PRAGMA data_version").fetchall()[0][0]
                cursor.close()
            return f"{self._name}{number}"
        except (DBAPIError, sqlite3.Error):
            return os.urandom(8).hex()

    @contextmanager
    def writing(self, point: str = "") -> Iterator[Connection]:
        """A transaction: committed when the block ends, rolled back when it raises.

        `point` names the failpoints `<point>.commit.before` and `.after`. Raises: DiskFullError, OperationError.
        """
        if self.read_only:
            raise OperationError(f"{self.path} is open for reading only")
        with translated(self.path), self._turn, self._writing.connect() as connection, connection.begin() as transaction:
            yield connection
            failpoint.passing(f"{point}.commit.before")
            transaction.commit()
            failpoint.passing(f"{point}.commit.after")

    def shrink(self, pages: int) -> bool:
        """Return up to `pages` free pages to the disk. Returns whether there are more; False for a file without `shrinks`."""
        with self.writing() as connection:
            free = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
            if connection.exec_driver_sql("PRAGMA auto_vacuum").scalar() != _INCREMENTAL:
                return False
            for _ in range(min(free, pages)):  # one each: the pragma returns a row per page, and Python reads only the first
                connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return bool(free > pages)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        with self._looking:
            if self._look is not None:
                self._look.close()
                self._look = None
        self.engine.dispose()


def open_engine(path: Path, read_only: bool = False, durable: bool = True, shrinks: bool = False) -> Engine:
    """An engine on a SQLite file in WAL mode. Nothing is opened before the first connection.

    `shrinks`: a new file tracks its pages, at a small cost for each new one, so that `shrink` works.
    """
    mode = "rw" if read_only else "rwc"  # a reader must write the -shm file, but must not create a database
    address = f"{path.absolute().as_uri()}?mode={mode}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=8, max_overflow=-1)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        if not read_only:
            if shrinks and connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # only possible before the first page is written
            connection.execute("PRAGMA journal_mode=WAL")
        for pragma in (
            f"synchronous={'FULL' if durable else 'NORMAL'}",
            "foreign_keys=ON",
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer locks first: a transaction that began as a reader cannot wait for the lock.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def read_version(engine: Engine) -> str | None:
    """The revision of a database; None if it has none of our tables yet."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(schema.VERSION_TABLE):
            return None
        return connection.execute(select(_VERSION.c.version_num)).scalar()


def refuse_unknown_version(version: str | None, path: Path) -> None:
    """Raises: OperationError if a newer version of this program wrote the file."""
    if version is not None and version not in schema.REVISIONS:
        raise OperationError(
            f"{path} was written by a newer version (revision {version}; this one knows {schema.HEAD})",
            hint="upgrade trainmaster on this machine",
        )


def create_tables(engine: Engine, store: str) -> None:
    """Create all tables of a store at the head revision, in one transaction. Does nothing if they exist."""
    with engine.execution_options(writes=True).begin() as connection:
        if inspect(connection).has_table(schema.VERSION_TABLE):
            return  # another process was faster
        schema.STORES[store].create_all(connection, checkfirst=False)
        connection.execute(text(VERSION_SQL))
        connection.execute(_VERSION.insert().values(version_num=schema.HEAD))


VERSION_SQL = (  # exactly as Alembic writes it; a test compares them
    f"CREATE TABLE {schema.VERSION_TABLE} (\n\tversion_num VARCHAR(32) NOT NULL, \n"
    f"\tCONSTRAINT {schema.VERSION_TABLE}_pkc PRIMARY KEY (version_num)\n)"
)


def upsert(
    into: Table, keys: Sequence[str], where: Callable[[Any], ColumnElement[bool]] | None = None, kept: Sequence[str] = ()
) -> Insert:
    """An insert that replaces the row with the same `keys`, if the new row satisfies `where`. `kept` columns keep their value.

    PostgreSQL's insert has the same methods: only this function would have to distinguish the two.
    """
    statement = insert(into)
    new = statement.excluded
    replaced = {column.name: new[column.name] for column in into.columns if column.name not in (*keys, *kept)}
    return statement.on_conflict_do_update(index_elements=list(keys), set_=replaced, where=where and where(new))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate database errors into our errors. Programming errors pass through."""
    try:
        yield
    except DBAPIError as error:
        cause = error.orig
        if not isinstance(cause, sqlite3.DatabaseError) or isinstance(cause, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        if _disk_is_full(cause, path.parent):
            files = _no_more_files(path.parent)
            what = f"no more files can be made beside {path}" if files else f"no space left for {path}"
            free = "remove some files from" if files else "free some space on"
            hint = f"{free} the disk of {path.parent}; what was accepted before is safe"
            raise DiskFullError(f"{what}: nothing was written", hint) from error
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            hint = "`tm doctor` checks every file; bring a backup back with tm restore"
            raise DamagedError(f"{path} is damaged: {cause}", hint) from error
        raise OperationError(f"{path}: {cause}", hint="`tm doctor` checks every file of the server") from error


def _disk_is_full(error: sqlite3.DatabaseError, directory: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    # On a full disk, growing the -shm file or opening a journal fails as a plain I/O error: test the disk itself.
    return code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _refuses_bytes(directory)


def _no_more_files(directory: Path) -> bool:
    """Whether the disk has run out of inodes, not bytes."""
    with suppress(OSError):
        found = os.statvfs(directory)
        return bool(found.f_files) and found.f_favail == 0
    return False


def _refuses_bytes(directory: Path) -> bool:
    try:
        descriptor, name = tempfile.mkstemp(prefix=".probe-", dir=directory)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    try:
        os.write(descriptor, bytes(_PROBE_BYTES))
        os.fsync(descriptor)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(name)
    return False
