"""The identity of a home: one id, stored in `home.json` and in each of the home's databases.

The id is `<server>.<epoch>`: the server's name, which a restore keeps, and a random part, which it does not.
It is created once, with the home. Files with different ids are refused, and so is a home without its log. The path is not
part of the identity: a moved home keeps working, a copy beside its original is refused.
"""

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select

from trainmaster import troubles
from trainmaster.errors import DamagedError, OperationError
from trainmaster.home import Home, write_atomic
from trainmaster.model.ids import AgentKey
from trainmaster.store import schema
from trainmaster.store.database import create_tables, open_engine, read_version, translated, upsert
from trainmaster.store.inbox import SqlInbox
from trainmaster.wire.names import AGENT
from trainmaster.wire.processes import same_process

ANEW = "move the whole home aside and restore a backup (tm restore FOLDER), or start a new log on purpose: tm up --new-log"
_NAMED_MAX = 5
_DIGITS_MAX = 18  # of a job's number
_FIRST_ROWS = {"events": schema.event, "inbox": schema.counter, "metrics": schema.series}  # empty: nothing was stored yet
_LOST_WORDS = {
    "inbox": "inbox.db was missing and has been created anew: commands that were accepted and not yet processed are lost",
    "metrics": "metrics.db was missing and has been created anew: the metric points up to now are lost",
}

_OLDER = "metrics.db is an older copy that was put back: metric points that were stored since are lost"
_SET_MARK = upsert(schema.unstepped, ["series", "n"])
_DAMAGED = {"metrics": "metric points up to now are not shown, jobs run on"}


class _Read(NamedTuple):
    id: str | None
    empty: bool


def files(home: Home) -> dict[str, Path]:
    """The databases that have the id, by store."""
    return {"events": home.events_db, "inbox": home.inbox_db, "metrics": home.metrics_db}


def refuse_lost(home: Home) -> list[str]:
    """The stores whose files are missing, before any is created. Raises: OperationError for a home without its log."""
    absent = [store for store, path in files(home).items() if not _has_content(path)]
    if "events" not in absent:
        return absent
    rest = [path.name for path in (home.id_file, home.inbox_db, home.metrics_db) if _has_content(path)]
    if rest:
        are = "is" if len(rest) == 1 else "are"
        what = f"{home.root} has lost its log: events.db is missing or empty, {', '.join(rest)} {are} not"
        raise OperationError(f"{what}. {_running(home)}", ANEW)
    return absent


def join(home: Home, absent: list[str], server: str) -> str:
    """Ensure that the home and its databases have the same id, and return it. `absent` are stores created just now.

    Raises: OperationError if they have different ids.
    """
    own = home.identity()
    read = {store: _read(path, store) for store, path in files(home).items()}
    if own:
        _refuse_copy(home, own)
        foreign = [store for store, one in read.items() if one.id != own and not _may_adopt(store, one)]
        if foreign:
            raise _mixed(home, {"home.json": own} | {files(home)[store].name: read[store].id for store in read})
        missing = [store for store, one in read.items() if one.id is None]
    else:
        found = {one.id for one in read.values() if one.id is not None}
        if len(found) > 1:
            raise _mixed(home, {files(home)[store].name: one.id for store, one in read.items()})
        own = found.pop() if found else f"{server or secrets.token_hex(8)}.{secrets.token_hex(4)}"
        missing = [store for store, one in read.items() if one.id is None]
        if read["events"].empty:
            _keep_ahead(home)
    for store in missing:
        replaces = store == "metrics" and read[store].empty and not read["events"].empty
        _write(files(home)[store], store, own, replaces)
    for store in [store for store in absent if store in _LOST_WORDS and not read["events"].empty]:
        troubles.say(f"lost {store}", _LOST_WORDS[store])
    _note_place(home, own)
    return own


def set_aside(path: Path, store: str, why: DamagedError) -> Path:
    """Rename a damaged file that jobs can do without, and create an empty one of the same home in its place.

    Returns the new path of the damaged file.
    """
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    engine = open_engine(path)
    try:
        create_tables(engine, store)
    finally:
        engine.dispose()
    _write(path, store, Home(path.parent).identity(), replaces=True)
    told = f"{why.message}; it was set aside as {aside.name}, and a new one was created: {_DAMAGED[store]}"
    troubles.say(f"damaged {store}", told)
    return aside


def begin_above(connection: Connection, seq: int) -> None:
    """Number the points that are still to come above `seq`."""
    connection.execute(_SET_MARK, {"series": schema.MARK, "n": 0, "attempt": 0, "value": None, "time_s": 0.0, "seq": seq})


def probe(home: Home) -> None:
    """Move the metrics file aside if it is proven to be damaged: jobs run without it."""
    if not _has_content(home.metrics_db):
        return
    engine = open_engine(home.metrics_db)
    try:
        with translated(home.metrics_db):
            if read_version(engine) is not None:
                with engine.connect() as connection:
                    connection.exec_driver_sql("SELECT * FROM sqlite_master").all()
                    connection.exec_driver_sql("SELECT max(id) FROM series").all()
    except DamagedError as error:
        engine.dispose()
        set_aside(home.metrics_db, "metrics", error)
    finally:
        engine.dispose()


def _read(path: Path, store: str) -> _Read:
    first = _FIRST_ROWS[store]
    engine = open_engine(path)
    try:
        with translated(path), engine.connect() as connection:
            return _Read(_id(connection, store), connection.execute(select(first).limit(1)).first() is None)
    finally:
        engine.dispose()


def _id(connection: Connection, store: str) -> str | None:
    id: str | None = connection.scalar(select(schema.identity[store].c.home))
    return id


def _write(path: Path, store: str, id: str, replaces: bool = False) -> None:
    """Write the id, unless it is empty. `replaces`: it is a metrics file in the place of a lost one.

    Mirrors remember a number of the lost file, and nobody knows its last one. A time in microseconds is above it: no server
    takes a million points per second.
    """
    engine = open_engine(path)
    try:
        with translated(path), engine.execution_options(writes=True).begin() as connection:
            if id and _id(connection, store) is None:
                connection.execute(insert(schema.identity[store]).values(id=1, home=id))
            if replaces:
                begin_above(connection, int(time.time() * 1e6))
                connection.exec_driver_sql(f"PRAGMA user_version = {_starts(Home(path.parent))}")
    finally:
        engine.dispose()


def _starts(home: Home) -> int:
    """How often a server has started here, as `home.json` knows."""
    return int((home.read_json(home.id_file) or {}).get("starts") or 0)


def count_start(home: Home) -> None:
    """Count a start of the server in `home.json` and in the metrics file.

    One that knows of fewer is an older copy that was put back by hand: what it lacks is as lost.
    """
    before = _starts(home)
    engine = open_engine(home.metrics_db)
    try:
        with translated(home.metrics_db), engine.execution_options(writes=True).begin() as connection:
            known = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
            if known < before:
                begin_above(connection, int(time.time() * 1e6))
                troubles.say("older metrics", _OLDER)
            connection.exec_driver_sql(f"PRAGMA user_version = {max(known, before) + 1}")
    finally:
        engine.dispose()
    write_atomic(home.id_file, json.dumps({**(home.read_json(home.id_file) or {}), "starts": max(known, before) + 1}).encode())


def _may_adopt(store: str, one: _Read) -> bool:
    """Whether the file was created and not yet marked when its process died. Never the log: an empty one has lost all."""
    return one.id is None and one.empty and store != "events"


def _mixed(home: Home, ids: Mapping[str, str | None]) -> OperationError:
    told = ", ".join(f"{name} belongs to {id or 'none'}" for name, id in ids.items())
    hint = f"put the files of one home together, or {ANEW}"
    return OperationError(f"the files of {home.root} do not belong together: {told}. {_running(home)}", hint)


def _note_place(home: Home, id: str) -> None:
    """Write the id and the location of the home into `home.json`, if they changed."""
    status, known = os.stat(home.root), home.read_json(home.id_file) or {}
    record = {**known, "id": id, "path": str(home.root), "device": status.st_dev, "inode": status.st_ino}
    if known != record:
        write_atomic(home.id_file, json.dumps(record).encode())


def _refuse_copy(home: Home, id: str) -> None:
    """Raises: OperationError for a copy whose original still exists, or may exist: both would control the same agents."""
    record: dict[str, Any] = home.read_json(home.id_file) or {}
    original = Home(Path(str(record.get("path") or home.root)))
    try:
        if os.path.samefile(original.root, home.root) or original.identity() != id:
            return
    except (FileNotFoundError, NotADirectoryError):
        return  # the home was moved
    except OSError as error:
        what = f"{home.root} may be a copy of {original.root}, which cannot be read: {error.strerror}"
        hint = f"make it readable; if no server will ever run there again, remove {home.id_file}: it is written anew"
        raise OperationError(what, hint) from error
    hint = f"remove the unwanted one; to replace one: tm backup of {original.root}, tm restore here"
    raise OperationError(f"{home.root} is a copy of {original.root}, which still exists: both would run the same jobs", hint)


def numbers_used(home: Home, stored: Iterable[str] = ()) -> dict[str, int]:
    """The highest number of each experiment of which a job has directories here, or is among the jobs `stored` elsewhere.

    Raises: OSError if they cannot be listed, which does not prove that there are none.
    """
    numbers: dict[str, int] = {}
    places = (home.root / "attempts", home.root / "work", home.blobs / "checkpoints", home.blobs / "artifacts")
    for name in chain(stored, *map(_names, places)):
        experiment, _, number = name.rpartition("-")
        if experiment and number.isdecimal() and len(number) <= _DIGITS_MAX:
            numbers[experiment] = max(numbers.get(experiment, 0), int(number))
    return numbers


def _keep_ahead(home: Home) -> None:
    """Prevent a new log from reusing the number of a job whose directories exist."""
    numbers = numbers_used(home)
    if numbers:
        inbox = SqlInbox(home.inbox_db)
        try:
            inbox.keep_ahead(0, numbers)
        finally:
            inbox.close()


def _running(home: Home) -> str:
    """A sentence about the agents that run."""
    try:
        pids = [pid for marker in _names(home.live) if (pid := _agent_pid(home, marker)) is not None]
    except OSError as error:
        return f"Whether agents run is not known: {home.live} cannot be read: {error.strerror}"
    if not pids:
        return "No agent runs"
    them = "One agent runs" if len(pids) == 1 else f"{len(pids)} agents run"
    named = ", ".join(str(pid) for pid in pids[:_NAMED_MAX])
    return f"{them} (process {named}): training continues, and reports stay on the disk"


def _agent_pid(home: Home, marker: str) -> int | None:
    """The process of an agent in the index; None if it does not run."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        key = AgentKey.parse(marker.replace("~", "/"))
        record = home.read_json(home.attempt(key.job, key.attempt, key.node_index) / AGENT) or {}
        if same_process(int(record["pid"]), int(record["start_ticks"]), str(record["boot_id"])):
            return int(record["pid"])
    return None


def _names(place: Path) -> list[str]:
    """Raises: OSError if they are unknown."""
    try:
        return os.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _has_content(path: Path) -> bool:
    """Whether a database file has any content. Raises: OSError if that is unknown.

    A WAL file alone does not count: SQLite deletes it unread when it creates the database, and it may belong to a database
    that was only moved away for a moment.
    """
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
