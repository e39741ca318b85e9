"""`GET /troubles`: what is wrong with the server itself, as its processes say."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from trainmaster import troubles
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import models

router = APIRouter(tags=["server"])


class ServerTrouble(BaseModel):
    """One thing that is wrong with the server."""

    process: str = Field(description="which of the server's processes says so")
    topic: str
    text: str
    since_s: float = Field(description="when it was first noticed, in seconds since the epoch")


class Troubles(BaseModel):
    """What is wrong with the server; the oldest first."""

    troubles: list[ServerTrouble]


@router.get("/troubles", summary="What is wrong with the server", response_model=None, responses=models.answers(Troubles))
def all_troubles(request: Request) -> bodies.Json:
    """A full disk, a clock that jumped, a damaged file. Empty when all is well; `tm doctor` checks more."""
    home = runtime.of(request).services.home
    return bodies.Json({"troubles": told(troubles.everywhere(home))})


def told(found: list[troubles.Trouble]) -> list[dict[str, Any]]:
    """As JSON."""
    return [one._asdict() for one in found]
