"""Reads the job's context (job, attempt, rank, parameters) from the environment that the agent has set."""

import os
from typing import TYPE_CHECKING, Any, Dict, Optional

from trainmaster.sdk.channel import tell_restored
from trainmaster.wire.names import ENV_ATTEMPT, ENV_JOB, ENV_PARAMS, ENV_RESUME_DIR, ENV_RESUME_STEP

if TYPE_CHECKING:
    from pathlib import Path


def job() -> Optional[str]:
    """The job's id (`digits-14`); None outside a job."""
    return os.environ.get(ENV_JOB) or None


def attempt() -> int:
    """The number of this attempt, from 1; 1 outside a job."""
    return _number(ENV_ATTEMPT, 1)


def rank() -> int:
    """The rank of this process, from 0; 0 outside a job."""
    return _number("RANK", 0)


def world_size() -> int:
    """The number of ranks; 1 outside a job."""
    return _number("WORLD_SIZE", 1)


def params() -> Dict[str, Any]:
    """The job's parameters (`params` in the spec); empty outside a job."""
    text = os.environ.get(ENV_PARAMS)
    if not text:
        return {}
    import json  # noqa: PLC0415  # not needed by a program without parameters

    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def resume_dir() -> "Optional[Path]":
    """The directory of the checkpoint to resume from; None on a first start and outside a job."""
    text = os.environ.get(ENV_RESUME_DIR)
    if not text:
        return None
    from pathlib import Path  # noqa: PLC0415  # keeps the import of the SDK fast

    tell_restored(loaded=False)
    return Path(text)


def tell_loaded(step: int) -> None:
    """Tell the agent that a framework loaded the restored checkpoint, if `step` is its step: it may have loaded another."""
    if os.environ.get(ENV_RESUME_DIR) and os.environ.get(ENV_RESUME_STEP) == str(step):
        tell_restored(loaded=True)


def _number(name: str, absent: int) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return absent
