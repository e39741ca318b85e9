"""Imports metric points that an agent had not sent when it ended or was killed, from the file it keeps on this machine.

The api does it, because it alone writes metrics: at intervals, and before the first sample of a later attempt raises the
fence. The fence does not hold these points off: a file that could not be read then is imported later. Each point has a number
given by its agent, so the import is idempotent.
"""

import fcntl
import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster import troubles
from trainmaster.agent.transport import point_file
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.ports.metric_store import Arrival, MetricPoint, MetricStore
from trainmaster.wire.names import APART, EXIT, LOCK, METRICS_ARRIVING

_TROUBLE = "metrics"
_AT_ONCE = 5000  # values per transaction
_log = logging.getLogger("trainmaster.api")


def import_points(home: Home, metrics: MetricStore, job: str | None = None) -> int:
    """Import the leftover points of ended or dead agents, of one job or of all; returns the number of values.

    Raises: OperationError when the store cannot be written. Files that were not imported stay where they are.
    """
    count, wrong = 0, list[str]()
    for key, path in _point_files(home):
        if job in (None, key.job):
            try:
                with _gone(home, key) as gone:
                    if gone or has_ended(home, key):
                        count += _import_file(home, metrics, key, path)
            except OSError as error:
                wrong.append(f"what the agent {key} left of its metrics cannot be read: {error}; it is tried again")
    if wrong:
        troubles.say(_TROUBLE, wrong[0])
    elif job is None:
        troubles.clear(_TROUBLE)
    return count


def _point_files(home: Home) -> list[tuple[AgentKey, Path]]:
    """All agents that have such a file, live ones included; earlier attempts first."""
    found = []
    with suppress(FileNotFoundError):
        for path in home.points("").parent.glob("*.jsonl"):
            with suppress(ValueError):
                found.append((AgentKey.parse(path.stem.replace("~", "/")), path))
    return sorted(found, key=lambda each: (each[0].job, each[0].attempt, each[0].node_index))


def has_left(home: Home, job: str, before: int) -> bool:
    """Whether attempts of the job before number `before` left points that are not imported yet."""
    return any(key.job == job and key.attempt < before for key, _ in _point_files(home))


def arriving(home: Home, job: Job) -> list[str]:
    """A note if ended attempts have points that are not stored yet, so that the last that are shown are not the last ones."""
    begun = 0 if job.attempt is None else job.attempt.number
    return [f"{METRICS_ARRIVING}: look again in a moment"] if has_left(home, job.id, begun + job.state.ended) else []


def is_gone(home: Home, key: AgentKey) -> bool:
    """Whether it is certain that no process holds the agent's lock."""
    try:
        with _gone(home, key) as gone:
            return gone
    except OSError:  # doubt is not proof
        return False


def has_ended(home: Home, key: AgentKey) -> bool:
    """Whether the agent has recorded its end. After that its file is complete, even if the agent still tries to send points.

    False if that cannot be determined.
    """
    with suppress(OSError):
        (home.attempt(key.job, key.attempt, key.node_index) / EXIT).stat()
        return True
    return False


@contextmanager
def _gone(home: Home, key: AgentKey) -> Iterator[bool]:
    """Whether the agent's lock is free; if so, hold it until the block ends. Raises: OSError if that cannot be determined."""
    path = home.attempt(key.job, key.attempt, key.node_index) / LOCK
    if (path.parent / APART).exists():  # its lock is on another machine
        yield has_ended(home, key)
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = True
        except BlockingIOError:
            gone = False
        yield gone
    finally:
        os.close(descriptor)


def _import_file(home: Home, metrics: MetricStore, key: AgentKey, path: Path) -> int:
    """Import the file of one agent. Raises: OSError."""
    directory = home.attempt(key.job, key.attempt, key.node_index)
    try:
        found = deque(_values(key, point) for point in point_file.recover(str(path), str(directory)))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        aside = path.with_suffix(".unreadable")
        path.rename(aside)
        _log.error("%s: what it left of its metrics is not what agents write: %s; it is kept as %s", key, error, aside)
        return 0
    count, refused = sum(len(values) for values in found), 0
    while found:
        group: list[MetricPoint] = []
        while found and len(group) < _AT_ONCE:  # all values of a point go into one transaction
            group += found.popleft()
        refused += metrics.write(group, [], fenced=False)
    path.unlink(missing_ok=True)
    if refused:
        _log.warning("%s: %d metric values that it left are not stored: their steps are beyond 64 bits", key, refused)
    if count:
        _log.info("%s: took up %d metric values that it had not sent", key, count - refused)
    return count - refused


def _values(key: AgentKey, left: point_file.RecoveredPoint) -> list[MetricPoint]:
    """The values of one point. Raises: AttributeError, TypeError or ValueError if it is malformed."""
    arrival = None if left.n is None else Arrival(key.node_index, int(left.n), None if left.at_s is None else float(left.at_s))
    rank, step, time_s = int(left.rank), left.step, float(left.time_s)
    named = left.values.items()
    return [MetricPoint(key.job, key.attempt, rank, step, name, float(value), time_s, arrival) for name, value in named]
