"""Where the REST interface of the server is.

The paths of agents, `/agent/...`, are no part of it: an agent outlives its server, and asks the next one at the same place.

JSON has no number for NaN and infinity. They are the words `NaN`, `Infinity` and `-Infinity`, as in the JSON of protobuf; null
is a value that is missing.
"""

from __future__ import annotations

import math
from typing import Any

ROOT = "/api/v1"
UNVERSIONED = frozenset(("/healthz", "/metrics", "/authority"))  # for load balancers and Prometheus, which know no version


def address(path: str) -> str:
    """Where the server has what is `path` in this interface: `/jobs` is at `/api/v1/jobs`."""
    return path if path in UNVERSIONED else ROOT + path


def within(path: str) -> str:
    """`path` without the root: `/api/v1/jobs` is `/jobs` in this interface."""
    return path[len(ROOT) :] if path.startswith(ROOT + "/") else path


def worded(value: Any) -> Any:
    """`value` with a word for every number that is not finite, to any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, dict):
        return {key: worded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [worded(item) for item in value]
    return value


def number_of(shown: float | str | None) -> float | None:
    """The value of a metric in an answer. Servers of older versions have null for NaN and infinity."""
    return float(shown) if isinstance(shown, str) else shown
