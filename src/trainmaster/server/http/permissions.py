"""What each route needs of who asks: the one table, and its checks. A route that is not in it is refused."""

from enum import Enum
from types import MappingProxyType

from fastapi import Request

from trainmaster.errors import PermissionDeniedError
from trainmaster.model.job import Job
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.credentials import Role


class Need(Enum):
    """The least that a route asks for."""

    NOTHING = "no token"
    AGENT = "the credential of an agent"
    MEMBER = "a token"
    OWNER = "the token of the member whose job it is, or of an administrator"
    ADMIN = "the token of an administrator"


_SEEN = (  # whoever has a token sees everything
    "/openapi.json", "/jobs", "/jobs/{ref}", "/jobs/{ref}/why", "/jobs/{ref}/metrics", "/jobs/{ref}/events",
    "/jobs/{ref}/watch", "/jobs/{ref}/logs", "/jobs/{ref}/logs/stream", "/jobs/{ref}/artifacts",
    "/jobs/{ref}/artifacts/{path:anyname}", "/jobs/{ref}/provenance", "/jobs/{ref}/diff", "/compare", "/logbook", "/queue",
    "/cluster", "/nodes", "/usage", "/history", "/storage", "/metrics", "/events/stream", "/troubles",
)  # fmt: skip
LEAST = MappingProxyType(
    {
        "GET /healthz": Need.NOTHING,
        **dict.fromkeys(
            (
                "POST /agent/sync", "POST /agent/store", "PUT /agent/blob", "GET /agent/blob", "POST /agent/exec/output",
                "POST /agent/exec/input",
            ),
            Need.AGENT,
        ),
        **{f"GET {path}": Need.MEMBER for path in _SEEN},
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
                "POST /jobs/{ref}/exec/{id}/input", "POST /jobs/{ref}/exec/{id}/stop", "POST /notes", "POST /jobs/remove",
                "POST /storage/prune",
            ),
            Need.OWNER,
        ),
        **dict.fromkeys(
            (
                "PUT /cluster", "POST /nodes/{name}/drain", "POST /nodes/{name}/resume", "POST /nodes/{name}/lost",
                "POST /storage/gc", "GET /tokens", "POST /tokens", "DELETE /tokens/{name}",
            ),
            Need.ADMIN,
        ),
    }
)  # fmt: skip
WITHOUT_TOKEN = frozenset(route.partition(" ")[2] for route, need in LEAST.items() if need in (Need.NOTHING, Need.AGENT))


def told(method: str, path: str) -> str:
    """What an operation of the OpenAPI document needs, in words."""
    need = LEAST.get(f"{method.upper()} {path.replace('{path}', '{path:anyname}')}")
    return "more than anybody has" if need is None else need.value


async def permitted(request: Request) -> None:
    """Run before each route of the api. Raises: PermissionDeniedError."""
    need = LEAST.get(f"{request.method} {request.scope['route'].path}")
    if need is Need.ADMIN or need is None:
        check_admin(request)
    if need is None:  # a fault of ours: whoever adds a route says who may call it
        raise PermissionDeniedError(f"nobody may call {request.scope['route'].path}", "report it")


def check_admin(request: Request) -> None:
    """Raises: PermissionDeniedError unless an administrator asks."""
    caller = runtime.caller(request)
    if caller.role is not Role.ADMIN:
        raise PermissionDeniedError(f"this needs an administrator; {caller.name} is a member", "ask an administrator")


def may_change(request: Request, job: Job) -> bool:
    """Whether who asks may change `job`: a member its own, an administrator any."""
    caller = runtime.caller(request)
    return caller.role is Role.ADMIN or job.owner == caller.name


def refusal(request: Request, job: Job) -> PermissionDeniedError:
    """Why who asks may not change `job`."""
    whose = job.owner or "nobody that is known"
    message = f"{job.id} belongs to {whose}; {runtime.user(request)} may change its own jobs alone"
    return PermissionDeniedError(message, "ask its owner, or an administrator")


def check_own(request: Request, job: Job) -> None:
    """Raises: PermissionDeniedError unless who asks may change `job`."""
    if not may_change(request, job):
        raise refusal(request, job)
