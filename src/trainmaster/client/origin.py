"""Where a job comes from: recorded at submit, so that a run can be told and repeated."""

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
    """Who submits, from where, with which environment (`model.spec.Origin` as the server reads it).

    `git` is (commit, dirty), as `Gathered` or `git_state` has it.
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
    }


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
