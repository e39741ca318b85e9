"""The limits on requests: bytes of a body by route, and how long a connection or a body may be idle.

A route that is not in the table takes `BODY_MAX_BYTES`. The OpenAPI document tells each route's own (`x-body-max-bytes`).
"""

from collections.abc import Mapping

from starlette.types import Scope

KIB, MIB = 1024, 1024 * 1024

BODY_MAX_BYTES = MIB
_BY_ROUTE: Mapping[tuple[str, str], int] = {
    ("POST", "/jobs/batch"): 64 * MIB,  # 10,000 jobs, each with the variables of its shell
    ("POST", "/jobs/cancel"): 4 * MIB,
    ("PUT", "/cluster"): 2 * MIB,
    ("POST", "/cluster/plan"): 2 * MIB,
    ("POST", "/code/missing"): 32 * MIB,  # a tree of 100,000 files
    ("POST", "/code"): 100 * MIB,  # on the disk, not in memory
    ("PUT", "/provenance/diffs/{sha256}"): 2 * MIB,
    ("POST", "/notes"): 128 * KIB,
    ("POST", "/tokens"): 16 * KIB,
    ("POST", "/jobs/{ref}/exec"): 256 * KIB,
    ("POST", "/jobs/{ref}/exec/{id}/input"): 2 * MIB,
    ("POST", "/agent/sync"): 8 * MIB,
    ("POST", "/agent/store"): 64 * MIB,  # a manifest of very many files
    ("POST", "/agent/exec/output"): 2 * MIB,
}

ALL_BODIES_BYTES = 128 * MIB  # bodies in memory at a time; the next one waits
BUSY_S = 20.0  # how long it waits before it is refused as busy

HEAD_S = 10.0  # for a request's first line and headers, from a connection's or the request's first moment
HEAD_MAX_BYTES = 64 * KIB
BODY_IDLE_S = 20.0  # in which nothing of a body comes
BODY_SLOWEST = 64 * KIB  # bytes per second on average, once BODY_IDLE_S is over
CONNECTIONS_MAX = 2048  # over TCP; agents come over the Unix socket
UNREAD_MAX_BYTES, UNREAD_S = MIB, 2.0  # of a body whose answer is given already: beyond it the connection ends
VALUES_MIN, VALUES_MAX = 100_000, 4_000_000  # values and names in a JSON body, whatever its route's limit is
BYTES_PER_VALUE = 4  # of a route's limit; the points of an agent are as dense as that


def body_max_bytes(method: str, route: str) -> int:
    """The largest body of a route, by its template (`/jobs/{ref}/exec`)."""
    return _BY_ROUTE.get((method, route), BODY_MAX_BYTES)


def of(scope: Scope) -> int:
    """The largest body of the route that serves this request."""
    return body_max_bytes(scope["method"], str(getattr(scope.get("route"), "path", scope["path"])))


def values_max(limit_bytes: int) -> int:
    """How many commas, colons and brackets a JSON body may hold: what bounds the memory that it takes once decoded."""
    return max(VALUES_MIN, min(limit_bytes // BYTES_PER_VALUE, VALUES_MAX))


def in_words(size_bytes: int) -> str:
    """`64 MiB`, `256 KiB`."""
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"
