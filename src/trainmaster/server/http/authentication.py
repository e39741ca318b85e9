"""Authenticates every request from its headers, before any byte of its body is read. Plain ASGI middleware."""

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
from trainmaster.server.runtime.credentials import Caller, Tokens, authenticate_agent, bearer
from trainmaster.server.runtime.workers import BODIES
from trainmaster.wire import rest

KEY_HEADER = "x-trainmaster-key"  # the key of the agent that sends the request
_AGENTS = "/agent/"
_STREAMS = re.compile(re.escape(rest.ROOT) + r"(?:/events/stream|/jobs/[^/]+/logs/stream)")


class AuthenticationMiddleware:
    """Admits requests with a valid token or agent credential, and puts the caller or the agent into the scope."""

    def __init__(self, app: ASGIApp, tokens: Tokens, secret: bytes, called: Callable[[], None]) -> None:
        self._app = app
        self._tokens = tokens
        self._secret = secret
        self._called = called  # called for every admitted request of a user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
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
        """Authenticate one request. Raises: AuthenticationError, UsageError."""
        if scope["path"].startswith(_AGENTS):
            scope["trainmaster.agent"] = self._agent(scope)
        elif scope["path"] not in WITHOUT_TOKEN:
            scope["trainmaster.caller"] = self._caller(scope)
            self._called()

    def _agent(self, scope: Scope) -> AgentKey | None:
        """The agent that sends the request; None for an agent of an earlier version, which names itself in the body.

        None is possible only over the Unix socket, where only this user can connect. Raises: AuthenticationError, UsageError.
        """
        told, given = _header(scope, KEY_HEADER.encode()), bearer(_header(scope, b"authorization"))
        if told is None and given is not None and scope["client"] is None:
            return None
        if told is None or given is None:
            raise AuthenticationError("this needs an agent's credential", f"send {KEY_HEADER} and 'Authorization: Bearer …'")
        return authenticate_agent(self._secret, told, given)

    def _caller(self, scope: Scope) -> Caller:
        """The user that sends the request. Raises: AuthenticationError."""
        query = scope["query_string"].decode("latin-1")  # given bytes, `parse_qs` accepts ASCII only
        ticket = parse_qs(query).get("ticket") if _STREAMS.fullmatch(scope["path"]) else None
        if ticket is not None:
            return self._tokens.ticket_caller(ticket[0], time.monotonic())
        return self._tokens.caller(bearer(_header(scope, b"authorization")))


def _header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value).decode("latin-1")
    return None
