"""Backs up a server's home while it runs, and creates a home from a backup. Standard library only.

Each database is copied with SQLite's online backup, as of one moment. The order is: mirror cursors, inbox, the log, and the
metrics last, after the points on their way there. So no later copy lacks what an earlier one refers to, and no point is missing
of what the log says has ended. The store's files are copied before, which can take hours, and what is new after the log. The
secret is not copied: a restored home creates its own, so that agents of the lost home are rejected.
"""

import contextlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster import configuration
from trainmaster.copied_files import Fact, Tree, UnreadableError, copy, fact_of, size_below, sync
from trainmaster.copied_points import keep_known, newest_attempts
from trainmaster.errors import ConflictError, NotFoundError, OperationError
from trainmaster.home import Home, write_atomic
from trainmaster.live_processes import running
from trainmaster.wire.names import AGENT, ENV_SDK, RESTORED_EPOCH, stored_name
from trainmaster.wire.names import MANIFEST as PART_MANIFEST
from trainmaster.wire.processes import same_process

MANIFEST = "backup.json"  # written last: without it the backup is incomplete
RESTORED = "restored"  # replaces the boot id in `agent.json`: no process of ours is older than a restore
_DATABASES = ("mirror.db", "inbox.db", "events.db", "metrics.db")
_FILES = ("settings.json", "server.toml", "token", "tokens.json", "restores.json")
_AUTHORITY = ("authority.pem", "authority.key")  # in `Home.tls`; people and agents of other machines trust no other
_MAY_BE_THERE = ("logs", "up.lock", "reserve")  # left in an empty home by a start that was rejected
_BLOBS = "blobs.json"  # the facts of the store's files, by name; earlier versions wrote none
_BUSY_S = 20.0
_LOGS_MAX = 5  # further copies of the log in one backup


class Copied(NamedTuple):
    """The content of a backup."""

    files: dict[str, int]  # name -> bytes
    blobs_bytes: int
    left_bytes: int | None  # size of the home's blob store if it is not included; None: it cannot be read
    damaged: tuple[str, ...] = ()  # files left out because SQLite cannot read them
    store: str | None = None  # where the store is, if not in the home: it is not included
    missing: tuple[str, ...] = ()  # parts of checkpoints that the log names and the home's store does not have whole
    unread: tuple[str, ...] = ()  # files and directories of the store that were left out because they cannot be read


class Restored(NamedTuple):
    """A home created from a backup. `live`: attempts that were running; their agents are gone."""

    taken_s: float
    origin: str
    live: tuple[str, ...]
    blobs: bool
    store: str | None = None  # where the store was, if not in the home
    verified: bool = True  # whether the backup has the digests of the store's files
    damaged: tuple[str, ...] = ()  # of the store's files: missing or unreadable in the backup, or not as written
    missing: tuple[str, ...] = ()  # as `Copied.missing`
    unread: tuple[str, ...] = ()  # as `Copied.unread`


def backup(home: Home, target: Path, blobs: bool) -> Copied:
    """Copy the home's databases and settings into an empty folder, and its blob store if requested.

    Raises: NotFoundError, ConflictError (the folder is not empty), OperationError.
    """
    if not home.events_db.exists():
        raise NotFoundError(f"there is no log in {home.root}", "name the home with TRAINMASTER_HOME")
    if target.is_dir() and any(target.iterdir()):
        raise ConflictError(f"{target} is not empty", "name a folder that is not there yet")
    storage, missing, stored = configuration.load(home).storage, list[str](), Tree()
    elsewhere = None if storage.directory(home) == home.blobs else storage.url
    blobs = blobs and elsewhere is None
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if blobs:
            stored.add(home.blobs, target / "blobs")
        damaged = _copy_databases(home, target, _DATABASES[:-1])
        if blobs:
            missing = _complete(home, target, stored)  # it may copy a newer log
            write_atomic(target / _BLOBS, json.dumps(stored.files).encode())
        _copy_points(home, target)
        damaged += _copy_databases(home, target, _DATABASES[-1:])
        for name in (*_FILES, *_AUTHORITY):
            with contextlib.suppress(FileNotFoundError):
                copy(_place(home, name), target / name)
        paths = sorted(path for path in (*target.iterdir(), *target.glob("points/*")) if path.is_file())
        files = {path.relative_to(target).as_posix(): fact_of(path) for path in paths}
        taken = {"id": home.identity(), "path": str(home.root), "taken_s": time.time(), "blobs": blobs, "files": files}
        told = {"store": elsewhere, "missing": missing, "unread": sorted(stored.unread)}
        write_atomic(target / MANIFEST, json.dumps({**taken, **told}, indent=1).encode())
    except UnreadableError as error:
        raise OperationError(f"the backup is incomplete: {error}", "check the disk of this file, and begin anew") from error
    except OSError as error:
        hint = f"check {target}, and begin with an empty one"
        raise OperationError(f"the backup could not be written: {error}", hint) from error
    sizes = {name: fact["bytes"] for name, fact in files.items()}
    left = 0 if blobs else size_below(home.blobs)
    return Copied(sizes, stored.bytes, left, tuple(damaged), elsewhere, tuple(missing), tuple(sorted(stored.unread)))


def _copy_databases(home: Home, target: Path, names: Iterable[str]) -> list[str]:
    """Copy those that exist. Returns the names of damaged ones that were left out. Raises: OperationError."""
    damaged = []
    for name in filter(lambda name: (home.root / name).exists(), names):
        try:
            _copy_database(home.root / name, target / name)
            if name == "metrics.db":
                keep_known(target / "events.db", target / name)
        except sqlite3.DatabaseError as error:
            if name in ("inbox.db", "events.db") or isinstance(error, sqlite3.OperationalError):
                raise _not_copied(home.root / name, error) from error
            (target / name).unlink(missing_ok=True)
            damaged.append(name)
    return damaged


def _copy_points(home: Home, target: Path) -> None:
    """Copy the points on their way into `metrics.db`, which is copied after them, of attempts that the copied log knows."""
    known = newest_attempts(target / "events.db")
    for name in _names(home.points("").parent):
        job, _, number = name.rpartition("~n")[0].rpartition(".")
        if name.endswith(".jsonl") and number.isdecimal() and int(number) <= known.get(job, 0):
            (target / "points").mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # all of them have arrived
                copy(home.root / "points" / name, target / "points" / name)


def _complete(home: Home, target: Path, stored: Tree) -> list[str]:
    """Copy what the store has besides `stored`. Returns the checkpoint parts of the copied log that are not whole.

    The server goes on removing old checkpoints. If one that the copied log names is gone before it is copied, a newer copy of
    the log no longer names it. What is missing although a newer log names it, too, is missing in the store.
    """
    stored.add(home.blobs, target / "blobs")
    missing = _lacking(target / "events.db", stored)
    for _ in range(_LOGS_MAX if missing else 0):
        try:
            _copy_database(home.events_db, target / "events.db")
        except sqlite3.DatabaseError as error:
            raise _not_copied(home.events_db, error) from error
        stored.add(home.blobs, target / "blobs")
        before, missing = missing, _lacking(target / "events.db", stored)
        if missing <= before:
            break
    return sorted(missing)


def _lacking(log: Path, stored: Tree) -> set[str]:
    """The parts of good checkpoints that a log names and the copy of the store beside it does not have whole."""
    with contextlib.closing(sqlite3.connect(log)) as raw:
        if not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'job'").fetchone():
            return set()
        rows = raw.execute("SELECT id, data FROM job").fetchall()
    parts = {
        f"checkpoints/{job}/{one['id']}/n{part['node_index']}": part["digest"]
        for job, data in rows
        for one in json.loads(data).get("checkpoints", ())
        if one.get("good", True)
        for part in one["parts"]
    }
    return {part for part, digest in parts.items() if not _is_whole(log.parent / "blobs", part, digest, stored)}


def _is_whole(root: Path, part: str, digest: str, stored: Tree) -> bool:
    """Whether a part of a checkpoint was copied with its manifest and each file in it, as their digests say."""
    manifest = f"{part}/{PART_MANIFEST}"
    if stored.digest(manifest) != digest:
        return False
    files = json.loads((root / manifest).read_bytes())["files"]
    return all(stored.digest(f"{part}/{stored_name(one['path'])}") == one["sha256"] for one in files)


def _not_copied(path: Path, error: sqlite3.Error) -> OperationError:
    return OperationError(f"{path} could not be copied: {error}", "`tm doctor` checks every file; nothing was changed")


def restore(home: Home, source: Path) -> Restored:
    """Create a home from a backup. Call it only while no server runs on the home.

    Raises: NotFoundError (no complete backup), ConflictError (the home is not empty, or the lost server still runs),
    OperationError.
    """
    taken = _whole(source)
    there = [name for name in _names(home.root) if name not in _MAY_BE_THERE]
    if there:
        message = f"{home.root} is not empty: {', '.join(sorted(there)[:5])}"
        raise ConflictError(message, "choose another place with TRAINMASTER_HOME, or move this one aside")
    lost = (home.root, Path(taken["path"]))  # after the server was stopped, its agents continue alone
    left = sorted({pid for root in lost for pid in (*_ranks_below(root), *_agents_of(Home(root)))})
    if left:
        message = f"processes of jobs of the lost home still run: {', '.join(map(str, left[:5]))}"
        hint = "restored, their jobs would run twice: end them (there: tm up, then tm down --cancel), or wait for their end"
        raise ConflictError(message, hint)
    if (server := running(Home(Path(taken["path"])))) is not None:
        message = f"the server that this is a backup of still runs: {server.url}, on {taken['path']}"
        raise ConflictError(message, "two would run the same jobs: stop it for good first (tm down --cancel)")
    try:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        epoch = f"{str(taken['id']).partition('.')[0]}.{RESTORED_EPOCH}{secrets.token_hex(4)}"
        known, wrong = _copy_blobs(home, source, taken)
        home.numbers_unknown.touch()
        own = [name for name in taken["files"] if name != _BLOBS]
        names = sorted(own, key=lambda name: name == "events.db")  # the log last: a home without it is rejected
        live: list[str] = []
        for name in names:
            place = _place(home, name)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            part = place.with_name(f".{place.name}.part")
            copy(source / name, part)
            if name in _DATABASES:
                live += _begin_epoch(home, part, epoch)
            part.replace(place)
        status = home.root.stat()
        record = {"id": epoch, "path": str(home.root), "device": status.st_dev, "inode": status.st_ino}
        write_atomic(home.id_file, json.dumps(record).encode())
    except (OSError, sqlite3.Error) as error:
        hint = f"remove what is in {home.root}, and try again"
        raise OperationError(f"the backup could not be restored: {error}", hint) from error
    lacks = (tuple(taken.get("missing", ())), tuple(taken.get("unread", ())))
    of = (float(taken["taken_s"]), str(taken["path"]), tuple(live), bool(taken["blobs"]), taken.get("store"))
    return Restored(*of, known, tuple(wrong), *lacks)


def _place(home: Home, name: str) -> Path:
    """Where a home has a file of a backup."""
    return (home.tls if name in _AUTHORITY else home.root) / name


def _copy_blobs(home: Home, source: Path, taken: dict[str, Any]) -> tuple[bool, list[str]]:
    """Copy the store's files of a backup. Returns whether it has digests of them, and those missing, unreadable or damaged."""
    if not taken["blobs"]:
        return True, []
    found = Tree()
    found.add(source / "blobs", home.blobs)
    if _BLOBS not in taken["files"]:
        return False, sorted(found.unread)
    wanted: dict[str, Fact] = json.loads((source / _BLOBS).read_bytes())
    return True, sorted(name for name, fact in wanted.items() if found.files.get(name) != fact)


def _whole(source: Path) -> dict[str, Any]:
    """The manifest of a backup, after every file was verified."""
    hint = "name the folder that tm backup has written"
    try:
        taken: dict[str, Any] = json.loads((source / MANIFEST).read_bytes())
        wrong = [name for name, fact in taken["files"].items() if fact_of(source / name) != fact]
        if not {"id", "path", "taken_s", "blobs"} <= taken.keys() or "events.db" not in taken["files"]:
            raise KeyError(MANIFEST)
    except FileNotFoundError as error:
        raise NotFoundError(f"{source} is not a complete backup: {error.filename} is not there", hint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotFoundError(f"{source} is not a backup: {MANIFEST} is invalid", hint) from error
    except OSError as error:
        raise OperationError(f"{source} cannot be read: {error}", hint) from error
    if wrong:
        raise OperationError(f"{source} is damaged: {', '.join(wrong)} is not as it was written", "use another backup")
    return taken


def _copy_database(path: Path, target: Path) -> None:
    """Copy a database as of one moment while other processes write. Raises: sqlite3.Error."""
    address = f"{path.absolute().as_uri()}?mode=rw"  # a reader of a journal must be able to write files beside it
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as source:
        source.execute("PRAGMA query_only=ON")
        with contextlib.closing(sqlite3.connect(target)) as copied:
            source.backup(copied)
            copied.execute("PRAGMA journal_mode=DELETE")
            found = copied.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(f"it is damaged: {found}")
    os.chmod(target, 0o600)
    sync(target)


def _begin_epoch(home: Home, path: Path, epoch: str) -> list[str]:
    """Write the new home's id into a copied database, and note the last job of the log: later ones are of the new home.

    What trackers were told is forgotten. Returns live attempts of the log, and marks their agents as gone.
    """
    with contextlib.closing(sqlite3.connect(path)) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "identity" in tables:
            raw.execute("INSERT OR REPLACE INTO identity (id, home) VALUES (1, ?)", (epoch,))
        if "run" in tables:  # the lost server may have told trackers more of a job that goes on now
            raw.execute("UPDATE run SET told = NULL WHERE unfinished")
        live = list(raw.execute("SELECT id, data FROM job WHERE live")) if "job" in tables else []
        if "job" in tables:
            (last,) = raw.execute("SELECT coalesce(max(seq), 0) FROM job").fetchone()
            restores = {**(home.read_json(home.restores_json) or {}), epoch: last}
            write_atomic(home.restores_json, json.dumps(restores).encode())
        raw.commit()
    sync(path)
    found = []
    for job, data in live:
        attempt = json.loads(data).get("attempt")
        if attempt is None or attempt.get("ended_s") is not None:
            continue
        found.append(f"{job}.{attempt['number']}")
        for index in range(len(attempt["nodes"])):
            directory = home.attempt(job, attempt["number"], index)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            gone = {"pid": 0, "start_ticks": 0, "boot_id": RESTORED}
            record = {"key": f"{job}.{attempt['number']}/n{index}", "home": epoch, **gone}
            write_atomic(directory / AGENT, json.dumps(record).encode())
    return found


def _ranks_below(root: Path) -> Iterator[int]:
    """Rank processes whose attempt is in this home."""
    mark = os.fsencode(f"\0{ENV_SDK}={root}{os.sep}")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                yield int(pid)


def _agents_of(home: Home) -> Iterator[int]:
    """Agents in a home's index that are running, with ranks or about to start them."""
    for marker in _names(home.live):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            key, _, index = marker.rpartition("~n")
            job, _, number = key.rpartition(".")
            record = home.read_json(home.attempt(job, int(number), int(index)) / AGENT) or {}
            if same_process(int(record["pid"]), int(record["start_ticks"]), str(record["boot_id"])):
                yield int(record["pid"])


def _names(root: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(root)
    return []
