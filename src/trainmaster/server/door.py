"""The door: who comes in. Plain ASGI, since every request passes it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from trainmaster.errors import AuthenticationError
from trainmaster.server.auth import Tokens, bearer
from trainmaster.server.errors import answer

_OPEN = frozenset(("/healthz", "/agent/sync"))  # anyone's; and for agents, who prove themselves otherwise


class Door:
    """Lets a request in that carries a known token, and writes its owner's name into the scope."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["path"] not in _OPEN:
            try:
                scope["trainmaster.user"] = self._tokens.owner(bearer(_authorization(scope)))
            except AuthenticationError as error:
                await answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _authorization(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value).decode("latin-1")
    return None
