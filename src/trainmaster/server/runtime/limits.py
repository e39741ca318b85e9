"""Limits on requests: body size by route, idle times of connections and bodies.

Paths are written without `/api/v1` (`wire.rest`). A route that is not in the table accepts `BODY_MAX_BYTES`. The OpenAPI
document shows each limit (`x-body-max-bytes`).
"""

from collections.abc import Mapping

from starlette.types import Scope

from trainmaster.wire import rest
from trainmaster.wire.names import COPY_WHOLE_BYTES

KIB, MIB = 1024, 1024 * 1024

BODY_MAX_BYTES = MIB
_BY_ROUTE: Mapping[tuple[str, str], int] = {
    ("POST", "/jobs/batch"): 64 * MIB,  # 10,000 jobs, each with its environment variables
    ("POST", "/jobs/cancel"): 4 * MIB,
    ("PUT", "/cluster"): 2 * MIB,
    ("POST", "/cluster/plan"): 2 * MIB,
    ("POST", "/code/missing"): 32 * MIB,  # a tree of 100,000 files
    ("POST", "/code"): 100 * MIB,  # spooled to disk, not held in memory
    ("PUT", "/provenance/diffs/{sha256}"): 10 * MIB,
    ("POST", "/notes"): 128 * KIB,
    ("POST", "/tokens"): 16 * KIB,
    ("POST", "/jobs/{ref}/exec"): 256 * KIB,
    ("POST", "/jobs/{ref}/exec/{id}/input"): 2 * MIB,
    ("POST", "/jobs/{ref}/exec/{id}/resize"): 16 * KIB,
    ("POST", "/agent/sync"): 8 * MIB,
    ("POST", "/agent/store"): 64 * MIB,  # a manifest of very many files
    ("POST", "/agent/exec/output"): 2 * MIB,
    ("PUT", "/agent/file"): COPY_WHOLE_BYTES,
}

COPY_MAX_BYTES = 4 * 1024 * MIB  # of one file that an agent copies; agents cut their logs far below
ALL_BODIES_BYTES = 128 * MIB  # total size of bodies in memory; further requests wait
BUSY_S = 20.0  # how long a request waits for memory before it is rejected as busy

HEAD_S = 10.0  # for a request's first line and headers, from the start of the connection or of the request
HEAD_MAX_BYTES = 64 * KIB
BODY_IDLE_S = 20.0  # longest time without new body bytes
BODY_SLOWEST = 64 * KIB  # slowest average rate in bytes per second, checked after BODY_IDLE_S
CONNECTIONS_MAX = 2048  # over TCP; agents come over the Unix socket
UNREAD_MAX_BYTES, UNREAD_S = MIB, 2.0  # of a body that is still sent after the response; beyond that the connection ends
VALUES_MIN, VALUES_MAX = 100_000, 4_000_000  # bounds of the number of values and names in a JSON body, on every route
BYTES_PER_VALUE = 4  # a body may hold one value per so many bytes of its route's limit; agents' points are that dense


def body_max_bytes(method: str, route: str) -> int:
    """The largest body of a route, given its template (`/jobs/{ref}/exec`, with or without the root)."""
    return _BY_ROUTE.get((method, rest.within(route)), BODY_MAX_BYTES)


def of(scope: Scope) -> int:
    """The largest body of the route that serves this request."""
    return body_max_bytes(scope["method"], str(getattr(scope.get("route"), "path", scope["path"])))


def values_max(limit_bytes: int) -> int:
    """How many commas, colons and brackets a JSON body may hold. This bounds the memory of the decoded value."""
    return max(VALUES_MIN, min(limit_bytes // BYTES_PER_VALUE, VALUES_MAX))


def in_words(size_bytes: int) -> str:
    """`64 MiB`, `256 KiB`."""
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"
