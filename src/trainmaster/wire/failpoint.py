"""Failpoints: named points at which a test may kill the process. `TRAINMASTER_FAILPOINT=name:n` sends SIGKILL when the
point is passed for the n-th time. With `name:n:path` only the first process that creates the file `path` is killed. Servers
reject the variable unless started with `--failpoints`. If it is not set, a pass costs one comparison.
"""

import os
import signal
from typing import Dict

from trainmaster.wire.names import ENV_FAILPOINT

POINTS = (
    "inbox.commit.before",
    "inbox.commit.after",
    "acknowledge.before",
    "acknowledge.after",
    "event.commit.before",
    "event.commit.after",
    "engine.submit.before",
    "engine.submit.after",
    "engine.record.before",
    "engine.record.after",
    "engine.stop.before",
    "engine.stop.after",
    "checkpoint.manifest.before",
    "checkpoint.manifest.after",
)

_name, _, _rest = os.environ.get(ENV_FAILPOINT, "").partition(":")
_count, _, _once = _rest.partition(":")
_passed: Dict[str, int] = {}


def passing(name: str) -> None:
    """Pass the named point. Does not return if the process is to be killed here."""
    if name != _name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(_count or "1") and _first():
        os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    """Whether no other process was killed here before; always true if no file is given."""
    if not _once:
        return True
    try:
        os.close(os.open(_once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
