"""The door: who comes in. Plain ASGI, since every request passes it."""

import time
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.errors import AuthenticationError
from trainmaster.server.auth import Tokens, bearer
from trainmaster.server.errors import answer

# Agents, who prove themselves otherwise.
_AGENTS = ("/agent/sync", "/agent/store", "/agent/blob", "/agent/exec/output", "/agent/exec/input")
_STREAMS = "/stream"
_OPEN = frozenset(("/healthz", *_AGENTS))


class Door:
    """Lets a request in that carries a known token, and writes its owner's name into the scope."""

    def __init__(self, app: ASGIApp, tokens: Tokens, called: Callable[[], None]) -> None:
        self._app = app
        self._tokens = tokens
        self._called = called  # of every caller who was let in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            try:
                scope["trainmaster.user"] = self._owner(scope)
                self._called()
            except AuthenticationError as error:
                await answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _owner(self, scope: Scope) -> str:
        """Who asks. Raises: AuthenticationError."""
        ticket = parse_qs(scope["query_string"]).get(b"ticket") if scope["path"].endswith(_STREAMS) else None
        if ticket is not None:
            return self._tokens.ticket_owner(ticket[0].decode("latin-1"), time.monotonic())
        return self._tokens.owner(bearer(_authorization(scope)))


def _authorization(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value).decode("latin-1")
    return None
