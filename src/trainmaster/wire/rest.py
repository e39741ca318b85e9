"""Where the REST interface of the server is.

The paths of agents, `/agent/...`, are no part of it: an agent outlives its server, and asks the next one at the same place.
"""

from __future__ import annotations

ROOT = "/api/v1"
UNVERSIONED = frozenset(("/healthz", "/metrics"))  # for load balancers and Prometheus, which know no version


def address(path: str) -> str:
    """Where the server has what is `path` in this interface: `/jobs` is at `/api/v1/jobs`."""
    return path if path in UNVERSIONED else ROOT + path


def within(path: str) -> str:
    """`path` without the root: `/api/v1/jobs` is `/jobs` in this interface."""
    return path[len(ROOT) :] if path.startswith(ROOT + "/") else path
