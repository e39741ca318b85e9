"""The entrance: who asks is known from a request's headers, before a byte of its body is read. Plain ASGI, on every request."""

import re
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.errors import AuthenticationError, TrainmasterError
from trainmaster.model.ids import AgentKey
from trainmaster.server.http import json_pieces
from trainmaster.server.http.bodies import LARGE
from trainmaster.server.http.errors import answer
from trainmaster.server.http.permissions import WITHOUT_TOKEN
from trainmaster.server.runtime.credentials import Caller, Tokens, bearer, proven_agent
from trainmaster.server.runtime.workers import BODIES

KEY_HEADER = "x-trainmaster-key"  # which agent sends the request
_AGENTS = "/agent/"
_STREAMS = re.compile(r"/events/stream|/jobs/[^/]+/logs/stream")


class Door:
    """Lets a request in that carries a known token or an agent's credential, and writes whose it is into the scope."""

    def __init__(self, app: ASGIApp, tokens: Tokens, secret: bytes, called: Callable[[], None]) -> None:
        self._app = app
        self._tokens = tokens
        self._secret = secret
        self._called = called  # of every person who was let in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http":
            try:
                self._admit(scope)
            except TrainmasterError as error:
                await answer(error)(scope, receive, send)
                return
        try:
            await self._app(scope, receive, send)
        finally:
            large = scope.pop(LARGE, None)
            if large is not None:
                await BODIES.run(json_pieces.dismantle, large)

    def _admit(self, scope: Scope) -> None:
        """Raises: AuthenticationError, UsageError."""
        if scope["path"].startswith(_AGENTS):
            scope["trainmaster.agent"] = self._agent(scope)
        elif scope["path"] not in WITHOUT_TOKEN:
            scope["trainmaster.caller"] = self._caller(scope)
            self._called()

    def _agent(self, scope: Scope) -> AgentKey | None:
        """Which agent asks; None for one of an earlier version, whose body says so.

        Only over the Unix socket, to which nobody else can connect. Raises: AuthenticationError, UsageError.
        """
        told, given = _header(scope, KEY_HEADER.encode()), bearer(_header(scope, b"authorization"))
        if told is None and given is not None and scope["client"] is None:
            return None
        if told is None or given is None:
            raise AuthenticationError("this needs an agent's credential", f"send {KEY_HEADER} and 'Authorization: Bearer …'")
        return proven_agent(self._secret, told, given)

    def _caller(self, scope: Scope) -> Caller:
        """Who asks. Raises: AuthenticationError."""
        query = scope["query_string"].decode("latin-1")  # as text: of bytes `parse_qs` takes nothing but ASCII
        ticket = parse_qs(query).get("ticket") if _STREAMS.fullmatch(scope["path"]) else None
        if ticket is not None:
            return self._tokens.ticket_caller(ticket[0], time.monotonic())
        return self._tokens.caller(bearer(_header(scope, b"authorization")))


def _header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value).decode("latin-1")
    return None
