"""What a person needs to sign in from another machine: the server's authority, and who a token is."""

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from trainmaster.errors import NotFoundError
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described

router = APIRouter(tags=["server"])
unversioned = APIRouter(tags=["server"])


class Me(described.Described):
    """The sender of the request."""

    name: str = Field(description="the member that is charged")
    role: str = Field(description="member or admin")


@router.get("/me", summary="Who the token is", response_model=None, responses=described.answers(Me))
async def me(request: Request) -> bodies.Json:
    """The member and the role of the token that is sent."""
    found = runtime.caller(request)
    return bodies.Json({"name": found.name, "role": found.role.value})


@unversioned.get(
    "/authority",
    summary="The certificate of the server's own authority",
    response_model=None,
    responses={200: {"content": {"application/x-pem-file": {}}, "description": "A certificate in PEM"}},
)
async def authority(request: Request) -> Response:
    """Needs no token; 404 if the server has none. It proves nothing until its fingerprint is compared: `tm up` says it."""
    place = runtime.of(request).services.place
    if place is None or not place.authority:
        raise NotFoundError("this server has no authority of its own", "use the certificates of your system")
    return Response(place.authority, media_type="application/x-pem-file")
