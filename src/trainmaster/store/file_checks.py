"""Read-only checks of every database file of a home, for `tm doctor`."""

import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from trainmaster.home import Home
from trainmaster.store.events import ChainRow, chain_hash
from trainmaster.store.identity import files

CHECK_S = 20.0  # per file; a larger one is checked in part
CHAIN = 10_000  # events at the end of the log whose hashes are checked; `tm doctor --replay` checks all
_STEPS = 100_000  # SQLite virtual machine instructions between two checks of the time
_BUSY_S = 20.0
_AHEAD_S = 60.0
_FAULTS_MAX = 3
_RESTORE = "stop the server (tm down), move the home aside, and restore a backup with tm restore"
_METRICS = "the server sets it aside at its next start and creates a new one; jobs run without it"


class Found(NamedTuple):
    """The result for one file. `ok` None: a notice, not an error."""

    name: str
    ok: bool | None
    text: str
    hint: str = ""


def check_files(home: Home) -> list[Found]:
    """Check each database of the home: its integrity, the home it belongs to, and for the log its hash chain."""
    paths = files(home) | {"mirror": home.mirror_db}
    return [_check(home, store, path) for store, path in paths.items() if path.exists()]


def _check(home: Home, store: str, path: Path) -> Found:
    hint = _METRICS if store == "metrics" else _RESTORE
    address = f"{path.absolute().as_uri()}?mode=rw"  # a reader of a WAL database needs to write its -shm file
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as raw:
            raw.execute("PRAGMA query_only=ON")
            faults = _quick_check(raw)
            if faults:
                return Found(path.name, False, f"{path} is damaged: {'; '.join(faults)}", hint)
            if store != "mirror" and (wrong := _wrong_home(home, raw)):
                return Found(path.name, False, f"{path} {wrong}", "put the files of one home together, or restore a backup")
            if store == "events" and (broken := _broken_chain(raw)):
                return Found(path.name, False, f"{path}: {broken}", "keep a copy of the home and report it")
            if store == "events" and (ahead_s := _ahead_s(raw)) > _AHEAD_S:
                told = f"the last event of {path} is dated {ahead_s / 3600:.1f} h ahead of this machine's clock"
                return Found(path.name, False, told, "correct the clock, then tm down and tm up: dates move along with it")
    except TimeoutError:
        return Found(path.name, None, f"{path} is too large to be checked in {CHECK_S:.0f} s; nothing is wrong so far")
    except sqlite3.OperationalError as error:  # busy, no permission, an I/O error: no proof of damage
        return Found(path.name, None, f"{path} could not be checked: {error}", "try again")
    except sqlite3.DatabaseError as error:
        return Found(path.name, False, f"{path} is damaged: {error}", hint)
    return Found(path.name, True, f"{path} is whole, {path.stat().st_size:,} bytes")


def _ahead_s(raw: sqlite3.Connection) -> float:
    """How far the log's last date is in the future."""
    row = raw.execute("SELECT last_now_s FROM head").fetchone()
    return 0.0 if row is None else float(row[0]) - time.time()


def _quick_check(raw: sqlite3.Connection) -> list[str]:
    """Errors that SQLite finds. Raises: TimeoutError."""
    end_s = time.monotonic() + CHECK_S
    raw.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS)
    try:
        rows = [str(row[0]) for row in raw.execute(f"PRAGMA quick_check({_FAULTS_MAX})")]
    except sqlite3.OperationalError as error:
        if time.monotonic() > end_s:
            raise TimeoutError from error
        raise
    finally:
        raw.set_progress_handler(None, 0)
    return [] if rows == ["ok"] else rows


def _wrong_home(home: Home, raw: sqlite3.Connection) -> str:
    own = home.identity()
    if not own or not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'identity'").fetchone():
        return ""  # from a version without home ids; the next start writes one
    row = raw.execute("SELECT home FROM identity").fetchone()
    whose = None if row is None else row[0]
    return "" if whose == own else f"is of another home ({whose or 'none'}), not of this one ({own})"


def _broken_chain(raw: sqlite3.Connection) -> str:
    """Describe the first of the last events whose hash does not follow from its predecessor."""
    rows = [ChainRow(*row) for row in raw.execute(f"SELECT * FROM event ORDER BY seq DESC LIMIT {CHAIN + 1}")][::-1]
    for before, row in pairwise(rows):
        if chain_hash(before.hash, row) != row.hash:
            return f"event {row.seq} is not what was written: the chain of hashes breaks there"
    return ""
