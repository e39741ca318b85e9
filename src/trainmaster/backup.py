"""Backs up a server's home while it runs, and creates a home from a backup. Standard library only.

Each database is copied with SQLite's online backup, as of one moment. The order is: mirror cursors, metrics, inbox, and the
log last. So no later copy lacks what an earlier one refers to. The secret is not copied: a restored home creates its own,
so that agents of the lost home are rejected.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.errors import ConflictError, NotFoundError, OperationError
from trainmaster.home import Home, write_atomic
from trainmaster.live_processes import running
from trainmaster.wire.names import AGENT, ENV_SDK
from trainmaster.wire.processes import same_process

MANIFEST = "backup.json"  # written last: without it the backup is incomplete
RESTORED = "restored"  # replaces the boot id in `agent.json`: no process of ours is older than a restore
_DATABASES = ("mirror.db", "metrics.db", "inbox.db", "events.db")
_FILES = ("settings.json", "server.toml", "token", "tokens.json")
_MAY_BE_THERE = ("logs", "up.lock", "reserve")  # left in an empty home by a start that was rejected
_BUSY_S = 20.0
_BLOCK_BYTES = 1024 * 1024


class Copied(NamedTuple):
    """The content of a backup. `left_bytes`: size of the blob store if it is not included."""

    files: dict[str, int]  # name -> bytes
    blobs_bytes: int
    left_bytes: int
    damaged: tuple[str, ...] = ()  # files left out because SQLite cannot read them


class Restored(NamedTuple):
    """A home created from a backup. `live`: attempts that were running; their agents are gone."""

    taken_s: float
    origin: str
    live: tuple[str, ...]
    blobs: bool


def backup(home: Home, target: Path, blobs: bool) -> Copied:
    """Copy the home's databases and settings into an empty folder, and its blob store if requested.

    Raises: NotFoundError, ConflictError (the folder is not empty), OperationError.
    """
    if not home.events_db.exists():
        raise NotFoundError(f"there is no log in {home.root}", "name the home with TRAINMASTER_HOME")
    if target.is_dir() and any(target.iterdir()):
        raise ConflictError(f"{target} is not empty", "name a folder that is not there yet")
    damaged: list[str] = []
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in filter(lambda name: (home.root / name).exists(), _DATABASES):
            try:
                _copy_database(home.root / name, target / name)
            except sqlite3.DatabaseError as error:
                if name in ("inbox.db", "events.db") or isinstance(error, sqlite3.OperationalError):
                    hint = "`tm doctor` checks every file; nothing was changed"
                    raise OperationError(f"{home.root / name} could not be copied: {error}", hint) from error
                (target / name).unlink(missing_ok=True)
                damaged.append(name)
        for name in _FILES:
            with contextlib.suppress(FileNotFoundError):
                _copy(home.root / name, target / name)
        stored = _copy_tree(home.blobs, target / "blobs") if blobs else 0
        files = {path.name: _fact(path) for path in sorted(target.iterdir()) if path.is_file()}
        taken = {"id": home.identity(), "path": str(home.root), "taken_s": time.time(), "blobs": blobs, "files": files}
        write_atomic(target / MANIFEST, json.dumps(taken, indent=1).encode())
    except OSError as error:
        hint = f"check {target}, and begin with an empty one"
        raise OperationError(f"the backup could not be written: {error}", hint) from error
    left = 0 if blobs else sum(size for _, size in _tree(home.blobs))
    return Copied({name: fact["bytes"] for name, fact in files.items()}, stored, left, tuple(damaged))


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
        epoch = f"{str(taken['id']).partition('.')[0]}.{secrets.token_hex(4)}"
        if taken["blobs"]:
            _copy_tree(source / "blobs", home.blobs)
        names = sorted(taken["files"], key=lambda name: name == "events.db")  # the log last: a home without it is rejected
        live: list[str] = []
        for name in names:
            part = home.root / f".{name}.part"
            _copy(source / name, part)
            if name in _DATABASES:
                live += _begin_epoch(home, part, epoch)
            part.replace(home.root / name)
        status = home.root.stat()
        record = {"id": epoch, "path": str(home.root), "device": status.st_dev, "inode": status.st_ino}
        write_atomic(home.id_file, json.dumps(record).encode())
    except (OSError, sqlite3.Error) as error:
        hint = f"remove what is in {home.root}, and try again"
        raise OperationError(f"the backup could not be restored: {error}", hint) from error
    return Restored(float(taken["taken_s"]), str(taken["path"]), tuple(live), bool(taken["blobs"]))


def _whole(source: Path) -> dict[str, Any]:
    """The manifest of a backup, after every file was verified."""
    hint = "name the folder that tm backup has written"
    try:
        taken: dict[str, Any] = json.loads((source / MANIFEST).read_bytes())
        wrong = [name for name, fact in taken["files"].items() if _fact(source / name) != fact]
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
        with contextlib.closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(f"it is damaged: {found}")
    os.chmod(target, 0o600)
    _sync(target)


def _begin_epoch(home: Home, path: Path, epoch: str) -> list[str]:
    """Write the new home's id into a copied database. Returns live attempts of the log, and marks their agents as gone."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "identity" in tables:
            raw.execute("INSERT OR REPLACE INTO identity (id, home) VALUES (1, ?)", (epoch,))
        live = list(raw.execute("SELECT id, data FROM job WHERE live")) if "job" in tables else []
        raw.commit()
    _sync(path)
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


def _copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)
    os.chmod(target, 0o600)
    _sync(target)


def _copy_tree(root: Path, target: Path) -> int:
    """Copy a tree; returns the number of bytes. A file that is removed meanwhile was not needed."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    total = 0
    for path, size in _tree(root):
        place = target / path.relative_to(root)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, place)
            total += size
    return total


def _tree(root: Path) -> Iterator[tuple[Path, int]]:
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = Path(directory, name)
                yield path, path.lstat().st_size


def _fact(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(root: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(root)
    return []
