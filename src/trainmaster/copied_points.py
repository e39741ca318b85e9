"""Removes from a copied `metrics.db` what the log copied before it does not know. Standard library only.

The points are copied after the log, so that none is missing of what it says has ended. A restored server gives the numbers of
the jobs and attempts that began between the two copies to others.
"""

import contextlib
import json
import sqlite3
from pathlib import Path

_OF_ATTEMPTS = ("arrival", "heartbeat", "latest")
_LATEST = (  # again, of the points that are left: of the lowest rank, the newest attempt and the highest step come first
    "INSERT OR IGNORE INTO latest (job, name, rank, attempt, step, value, time_s)"
    " SELECT series.job, series.name, series.rank, one.attempt, {step}, one.value, one.time_s"
    " FROM series JOIN {table} AS one ON one.series = series.id WHERE series.job = ?"
    " ORDER BY series.rank, one.attempt DESC, one.{position} DESC"
)


def keep_known(log: Path, points: Path) -> None:
    """Remove the points of jobs and attempts that are newer than `log`. Raises: sqlite3.Error."""
    known = newest_attempts(log)
    with contextlib.closing(sqlite3.connect(points)) as raw:
        if not _tables(raw) >= {"fence", "point"}:
            return
        for job, newest in raw.execute("SELECT job, attempt FROM fence").fetchall():
            if newest > known.get(job, 0):
                _forget(raw, job, known.get(job, 0))
        raw.commit()


def newest_attempts(log: Path) -> dict[str, int]:
    """The number of the newest attempt of each job. Raises: sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(log)) as raw:
        jobs = raw.execute("SELECT id, data FROM job").fetchall() if _tables(raw) >= {"job"} else []
    return {job: (json.loads(data).get("attempt") or {}).get("number", 0) for job, data in jobs}


def _forget(raw: sqlite3.Connection, job: str, after: int) -> None:
    """Remove what attempts after this one have told."""
    of_job, none = "series IN (SELECT id FROM series WHERE job = ?)", []
    for table in ("point", "unstepped"):
        none.append(f"NOT EXISTS (SELECT 1 FROM {table} WHERE {table}.series = series.id)")
        raw.execute(f"DELETE FROM {table} WHERE {of_job} AND attempt > ?", (job, after))
    for table in _OF_ATTEMPTS:
        raw.execute(f"DELETE FROM {table} WHERE job = ? AND attempt > ?", (job, after))
    raw.execute(f"DELETE FROM series WHERE job = ? AND {' AND '.join(none)}", (job,))
    raw.execute("UPDATE fence SET attempt = ? WHERE job = ?", (after, job))  # 0 of an unknown job: as if it had none
    for table, step, position in (("point", "one.step", "step"), ("unstepped", "NULL", "n")):
        raw.execute(_LATEST.format(table=table, step=step, position=position), (job,))


def _tables(raw: sqlite3.Connection) -> set[str]:
    return {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
