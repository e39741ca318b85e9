"""What the agent said of this run in the environment."""

import os
from typing import TYPE_CHECKING, Any, Dict, Optional

from trainmaster.wire.names import ENV_ATTEMPT, ENV_JOB, ENV_PARAMS, ENV_RESUME_DIR

if TYPE_CHECKING:
    from pathlib import Path


def job() -> Optional[str]:
    """The job's id (`digits-14`); None outside a job."""
    return os.environ.get(ENV_JOB) or None


def attempt() -> int:
    """The number of this try, from 1; 1 outside a job."""
    return _number(ENV_ATTEMPT, 1)


def rank() -> int:
    """This process among all ranks, from 0; 0 outside a job."""
    return _number("RANK", 0)


def world_size() -> int:
    """How many ranks there are; 1 outside a job."""
    return _number("WORLD_SIZE", 1)


def params() -> Dict[str, Any]:
    """The parameters of the job (`params` in the spec, a sweep's choices); empty outside a job."""
    text = os.environ.get(ENV_PARAMS)
    if not text:
        return {}
    import json  # noqa: PLC0415  # a program that has no parameters does not pay for it

    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def resume_dir() -> "Optional[Path]":
    """The directory of the checkpoint to continue from; None at a beginning and outside a job."""
    text = os.environ.get(ENV_RESUME_DIR)
    if not text:
        return None
    from pathlib import Path  # noqa: PLC0415  # the import of the SDK stays small

    return Path(text)


def _number(name: str, absent: int) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return absent
