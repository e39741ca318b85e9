"""Where a job was submitted from: recorded so that a run can be reproduced."""

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.home import account_name

RECORDED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TZ")


def origin(
    workdir: Path, git: tuple[str | None, bool] = (None, False), environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """User, host, directory and environment of a submit (`model.spec.Origin`).

    `git` is (commit, dirty), from `Gathered` or `git_state`.
    """
    environment = os.environ if environment is None else environment
    commit, dirty = git
    return {
        "user": account_name(),
        "host": socket.gethostname(),
        "directory": os.path.abspath(workdir),
        "python": platform.python_version(),
        "variables": {name: environment[name] for name in RECORDED if name in environment and _is_text(environment[name])},
        "git_commit": commit,
        "git_dirty": dirty,
        "umask": _umask(),
    }


def _umask() -> int | None:
    """This process's umask. Asking the system for it would set it for a moment, for all threads."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.partition(":")[2], 8) for line in lines if line.startswith("Umask:")), None)


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
