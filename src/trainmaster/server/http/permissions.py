"""Authorization: one table of the permission each route requires, and its checks. Routes missing from it are denied.

Paths of the REST interface are written without `/api/v1` (`wire.rest`).
"""

from enum import Enum
from types import MappingProxyType

from fastapi import Request

from trainmaster.errors import PermissionDeniedError
from trainmaster.model.job import Job
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.credentials import Role
from trainmaster.wire import rest


class Need(Enum):
    """The permission that a route requires."""

    NOTHING = "no token"
    AGENT = "the credential of an agent"
    MEMBER = "a token"
    OWNER = "the token of the member whose job it is, or of an administrator"
    ADMIN = "the token of an administrator"


_READ_ROUTES = (  # every token may read everything
    "/openapi.json", "/jobs", "/jobs/{ref}", "/jobs/{ref}/why", "/jobs/{ref}/metrics", "/jobs/{ref}/points",
    "/jobs/{ref}/events", "/jobs/{ref}/watch", "/jobs/{ref}/logs", "/jobs/{ref}/logs/stream", "/jobs/{ref}/artifacts",
    "/jobs/{ref}/spec",
    "/jobs/{ref}/artifacts/{path:anyname}", "/jobs/{ref}/provenance", "/jobs/{ref}/diff", "/compare", "/logbook", "/queue",
    "/me", "/cluster", "/nodes", "/gpus", "/usage", "/history", "/storage", "/storage/verify", "/metrics", "/events/stream",
    "/troubles",
)  # fmt: skip
REQUIRED = MappingProxyType(
    {
        **dict.fromkeys(("GET /healthz", "GET /authority"), Need.NOTHING),
        **dict.fromkeys(
            (
                "POST /agent/sync", "POST /agent/store", "PUT /agent/blob", "GET /agent/blob", "PUT /agent/file",
                "POST /agent/exec/output", "POST /agent/exec/input",
            ),
            Need.AGENT,
        ),
        **{f"GET {path}": Need.MEMBER for path in _READ_ROUTES},
        **dict.fromkeys(
            (
                "POST /jobs", "POST /jobs/batch", "POST /jobs/{ref}/reproduce", "POST /jobs/{ref}/fork", "POST /code/missing",
                "POST /code", "PUT /provenance/diffs/{sha256}", "POST /plan", "POST /cluster/plan", "POST /tickets",
            ),
            Need.MEMBER,
        ),
        **dict.fromkeys(
            (
                "POST /jobs/cancel", "POST /jobs/{ref}/cancel", "POST /jobs/{ref}/hold", "POST /jobs/{ref}/release",
                "POST /jobs/{ref}/requeue", "POST /jobs/{ref}/exec", "GET /jobs/{ref}/exec/{id}",
                "POST /jobs/{ref}/exec/{id}/input", "POST /jobs/{ref}/exec/{id}/stop", "POST /jobs/{ref}/exec/{id}/resize",
                "PATCH /jobs/{ref}", "POST /notes", "POST /jobs/remove", "POST /storage/prune",
            ),
            Need.OWNER,
        ),
        **dict.fromkeys(
            (
                "PUT /cluster", "POST /nodes/{name}/drain", "POST /nodes/{name}/resume", "POST /nodes/{name}/lost",
                "POST /storage/gc", "POST /storage/verify", "GET /tokens", "POST /tokens", "DELETE /tokens/{name}",
            ),
            Need.ADMIN,
        ),
    }
)  # fmt: skip
WITHOUT_TOKEN = frozenset(route.partition(" ")[2] for route, need in REQUIRED.items() if need in (Need.NOTHING, Need.AGENT))


def requirement_text(method: str, path: str) -> str:
    """The permission that an operation of the OpenAPI document requires, as text."""
    need = REQUIRED.get(f"{method.upper()} {rest.within(path).replace('{path}', '{path:anyname}')}")
    return "more than any token allows" if need is None else need.value


async def permitted(request: Request) -> None:
    """Check the caller before each route of the api. Raises: PermissionDeniedError."""
    need = REQUIRED.get(f"{request.method} {rest.within(request.scope['route'].path)}")
    if need is Need.ADMIN or need is None:
        check_admin(request)
    if need is None:  # a bug of ours: the route is missing from the table
        raise PermissionDeniedError(f"no token allows {request.scope['route'].path}", "report it")


def check_admin(request: Request) -> None:
    """Raises: PermissionDeniedError unless the caller is an administrator."""
    caller = runtime.caller(request)
    if caller.role is not Role.ADMIN:
        raise PermissionDeniedError(f"this needs an administrator; {caller.name} is a member", "ask an administrator")


def may_change(request: Request, job: Job) -> bool:
    """Whether the caller may change `job`: a member only its own jobs, an administrator any job."""
    caller = runtime.caller(request)
    return caller.role is Role.ADMIN or job.owner == caller.name


def refusal(request: Request, job: Job) -> PermissionDeniedError:
    """The error that says why the caller may not change `job`."""
    owner = job.owner or "an unknown member"
    message = f"{job.id} belongs to {owner}; {runtime.user(request)} may change its own jobs only"
    return PermissionDeniedError(message, "ask its owner, or an administrator")


def check_own(request: Request, job: Job) -> None:
    """Raises: PermissionDeniedError unless the caller may change `job`."""
    if not may_change(request, job):
        raise refusal(request, job)
