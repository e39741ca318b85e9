"""`/tokens`: create, list and revoke user tokens. For administrators only (see `permissions`)."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import UsageError
from trainmaster.ports.tokens import TokenRow
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.credentials import Role
from trainmaster.server.schemas import described
from trainmaster.server.schemas.token_schemas import NewToken, TokenGiven, TokenList, TokenRevoked
from trainmaster.wire.tls import fingerprint

router = APIRouter(tags=["tokens"])

Name = Annotated[str, Path(max_length=200)]
_KNOWN = frozenset(("name", "role", "expires_s"))


@router.get("/tokens", summary="List tokens", response_model=None, responses=described.answers(TokenList))
def list_tokens(request: Request) -> bodies.Json:
    """The tokens in the store. A token's text is shown only when it is created."""
    return bodies.Json({"tokens": [_view(row) for row in runtime.of(request).tokens.known()]})


@router.post(
    "/tokens",
    status_code=201,
    summary="Create a token",
    response_model=None,
    responses=described.answers(TokenGiven, 201),
    openapi_extra=described.body(NewToken),
)
async def create(request: Request) -> bodies.Json:
    """Only this response contains the token's text; the server keeps its SHA-256."""
    body = await bodies.read_json(request, "the token", _KNOWN)
    role, expires_s = bodies.text(body, "role") or Role.MEMBER.value, body.get("expires_s")
    if role not in set(Role):
        raise UsageError(f"there is no role {role[:80]!r}", f"there are {' and '.join(Role)}")
    if expires_s is not None and (isinstance(expires_s, bool) or not isinstance(expires_s, int | float)):
        raise UsageError("expires_s must be a number of seconds")
    tokens, name = runtime.of(request).tokens, bodies.text(body, "name") or ""
    token, row = await run_in_threadpool(tokens.create, name, Role(role), runtime.user(request), expires_s)
    place = runtime.of(request).services.place
    where: dict[str, str | None] = {"url": None, "fingerprint": None}
    if place is not None:
        where = {"url": place.url, "fingerprint": fingerprint(place.authority) if place.authority else None}
    return bodies.Json({**_view(row), "token": token, **where}, 201, {"Cache-Control": "no-store"})


@router.delete("/tokens/{name}", summary="Revoke a token", response_model=None, responses=described.answers(TokenRevoked))
async def revoke(request: Request, name: Name) -> bodies.Json:
    """The token is invalid from the next request on. Streams that were opened with it end."""
    api = runtime.of(request)
    await run_in_threadpool(api.tokens.revoke, name, runtime.user(request))
    api.notifier.notify_all()  # streams check whether their token is still valid
    return bodies.Json({"name": name})


def _view(row: TokenRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "role": row.role,
        "created_s": row.created_s,
        "made_by": row.made_by,
        "expires_s": row.expires_s,
        "expired": row.expires_s is not None and row.expires_s <= time.time(),
    }
