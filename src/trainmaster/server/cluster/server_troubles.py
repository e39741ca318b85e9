"""`GET /troubles`: problems of the server itself, as reported by its processes."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from trainmaster import troubles
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described

router = APIRouter(tags=["server"])


class ServerTrouble(described.Described):
    """One problem of the server."""

    process: str = Field(description="the server process that reports it")
    topic: str
    text: str
    since_s: float = Field(description="when it was first noticed, in seconds since the epoch")


class Troubles(described.Described):
    """Problems of the server, oldest first."""

    troubles: list[ServerTrouble]


@router.get("/troubles", summary="Problems of the server", response_model=None, responses=described.answers(Troubles))
def all_troubles(request: Request) -> bodies.Json:
    """For example a full disk, a clock that jumped, a damaged file. Empty if there are none; `tm doctor` checks more."""
    home = runtime.of(request).services.home
    return bodies.Json({"troubles": trouble_views(troubles.everywhere(home))})


def trouble_views(found: list[troubles.Trouble]) -> list[dict[str, Any]]:
    """Troubles as JSON."""
    return [one._asdict() for one in found]
