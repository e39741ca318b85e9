"""Metric points that agents left on this machine when they ended, or were killed, before the server had them.

Taken up by the api, which alone writes metrics: now and then, and before the first sample of a later attempt raises the
fence above them. What is taken up twice, after a crash between the two steps, is a step that is told again.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster.agent import points
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.ports.store import MetricPoint, MetricStore
from trainmaster.wire.names import LOCK

_AT_ONCE = 5000  # values of one transaction
_log = logging.getLogger("trainmaster.api")


def take_up(home: Home, metrics: MetricStore, job: str | None = None) -> int:
    """Bring into the store what agents that are gone left, of one job or of all; how many values that was.

    Raises: OperationError when the store cannot be written; what was not taken up is still there.
    """
    count = 0
    for key, path in _waiting(home):
        if job in (None, key.job):
            with _gone(home, key) as gone:
                if gone:
                    count += _take_up(home, metrics, key, path)
    return count


def _waiting(home: Home) -> list[tuple[AgentKey, Path]]:
    """Every agent with such a file, the living ones too; earlier attempts first."""
    found = []
    with suppress(FileNotFoundError):
        for path in home.points("").parent.glob("*.jsonl"):
            with suppress(ValueError):
                found.append((AgentKey.parse(path.stem.replace("~", "/")), path))
    return sorted(found, key=lambda each: (each[0].job, each[0].attempt, each[0].node_index))


@contextmanager
def _gone(home: Home, key: AgentKey) -> Iterator[bool]:
    """Whether nobody holds the agent's lock; then nobody does until the block ends."""
    try:
        descriptor = os.open(home.attempt(key.job, key.attempt, key.node_index) / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = True
    except BlockingIOError:
        gone = False
    try:
        yield gone
    finally:
        os.close(descriptor)


def _take_up(home: Home, metrics: MetricStore, key: AgentKey, path: Path) -> int:
    """One agent's."""
    directory = home.attempt(key.job, key.attempt, key.node_index)
    try:
        found = [
            MetricPoint(key.job, key.attempt, rank, step, name, float(value), time_s)
            for time_s, rank, step, values in points.left(str(path), str(directory))
            for name, value in values.items()
        ]
    except OSError as error:
        _log.warning("%s: what it left of its metrics cannot be read now: %s", key, error)
        return 0
    except (AttributeError, TypeError, ValueError) as error:
        path.rename(path.with_suffix(".unreadable"))
        _log.error("%s: what it left of its metrics is not what agents write: %s; it is kept beside", key, error)
        return 0
    late = sum(metrics.write(found[at : at + _AT_ONCE], []) for at in range(0, len(found), _AT_ONCE))
    path.unlink(missing_ok=True)
    if late:
        _log.warning("%s: %d metric values that it left came too late: a later attempt has begun", key, late)
    if found:
        _log.info("%s: took up %d metric values that it had not sent", key, len(found) - late)
    return len(found) - late
