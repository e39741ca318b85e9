"""Who is asking: tokens of people, kept as SHA-256 only, and credentials of agents, derived from the server's secret.

Neither is ever written to a log or into an error.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from typing import Any

from trainmaster.errors import AuthenticationError
from trainmaster.home import Home, account_name, write_atomic

TICKET_S = 60.0
_SEND = "send 'Authorization: Bearer <token>'; this machine's own server keeps it in $TRAINMASTER_HOME/token"


def credential(secret: bytes, key: str) -> str:
    """What the agent of `key` proves itself with."""
    return hmac.new(secret, key.encode(), hashlib.sha256).hexdigest()


def check_credential(secret: bytes, key: str, given: str | None) -> None:
    """Raises: AuthenticationError unless `given` is the credential of this very agent."""
    if given is None or not hmac.compare_digest(credential(secret, key).encode(), given.encode()):
        raise AuthenticationError("this is not the credential of that agent")


def bearer(header: str | None) -> str | None:
    """The token in an Authorization header."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


class Tokens:
    """The tokens this server knows: `tokens.json`, `{"tokens": [{name, sha256, created_s}]}`, mode 0600; and the tickets,
    which live in memory: short-lived keys for a URL, where a browser can send no header.
    """

    def __init__(self, home: Home) -> None:
        self._path = home.root / "tokens.json"
        self._home = home
        self._changed_ns = -1
        self._known: list[tuple[str, bytes]] = []
        self._tickets: dict[str, tuple[str, float]] = {}  # SHA-256 -> owner, until when on the monotonic clock

    def ensure_admin(self) -> None:
        """See to it that the token in `home.token_file` is known here, as this account's; make one at the first start."""
        try:
            token = self._home.token_file.read_text().strip()
        except FileNotFoundError:
            token = ""
        if not token:
            token = secrets.token_urlsafe(32)
            write_atomic(self._home.token_file, token.encode() + b"\n", 0o600)
        rows: list[dict[str, Any]] = (self._home.read_json(self._path) or {}).get("tokens", [])
        digest = hashlib.sha256(token.encode()).hexdigest()
        if all(row["sha256"] != digest for row in rows):
            rows.append({"name": account_name(), "sha256": digest, "created_s": time.time()})
            write_atomic(self._path, json.dumps({"tokens": rows}, indent=1).encode(), 0o600)

    def owner(self, token: str | None) -> str:
        """The name under which `token` acts. Raises: AuthenticationError."""
        if token is None:
            raise AuthenticationError("this needs a token", _SEND)
        self._refresh()
        digest = hashlib.sha256(token.encode(errors="replace")).hexdigest().encode()
        found = None
        for name, known in self._known:  # all of them are compared, whichever it is
            if hmac.compare_digest(known, digest):
                found = name
        if found is None:
            raise AuthenticationError("the server does not know this token")
        return found

    def ticket(self, owner: str, now_s: float) -> str:
        """A key that opens streams for `owner` for a minute."""
        self._tickets = {digest: kept for digest, kept in self._tickets.items() if kept[1] > now_s}
        made = secrets.token_urlsafe(24)
        self._tickets[hashlib.sha256(made.encode()).hexdigest()] = (owner, now_s + TICKET_S)
        return made

    def ticket_owner(self, ticket: str, now_s: float) -> str:
        """For whom a ticket was made. Raises: AuthenticationError."""
        owner, until_s = self._tickets.get(hashlib.sha256(ticket.encode(errors="replace")).hexdigest(), ("", 0.0))
        if until_s <= now_s:
            raise AuthenticationError("the ticket is not known or no longer holds", "get another one: POST /tickets")
        return owner

    def _refresh(self) -> None:
        """Read the file again when it changed."""
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
        except FileNotFoundError:
            return  # between two versions of it
        if changed_ns != self._changed_ns:
            rows = (self._home.read_json(self._path) or {}).get("tokens", [])
            self._known = [(str(row["name"]), str(row["sha256"]).encode()) for row in rows]
            self._changed_ns = changed_ns
