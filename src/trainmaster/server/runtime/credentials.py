"""Authentication: user tokens, stored as SHA-256 only, and agent credentials, derived from the server's secret.

Neither is ever written to a log or an error. `permissions` decides what a role may do.
"""

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum

from trainmaster.errors import AuthenticationError, ConflictError, NotFoundError, OperationError, UsageError
from trainmaster.home import Home, account_name, write_atomic
from trainmaster.model.ids import AgentKey
from trainmaster.ports.tokens import TokenRow, TokenStore
from trainmaster.wire import rest

TICKET_S = 60.0
TOKENS_MAX = 1000
EXPIRES_MAX_S = 10 * 365 * 86400.0
_TICKETS_MAX = 10_000
_PREFIX = "tm_"  # lets secret scanners, ours included, recognize a token
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_SEND = "send 'Authorization: Bearer <token>'; this machine's own server keeps it in $TRAINMASTER_HOME/token"
_UNKNOWN = "it was revoked, or is another server's; an administrator makes another one: tm token create NAME"
_log = logging.getLogger("trainmaster.api")


class Role(StrEnum):
    """What a token allows: a member sees everything and changes its own jobs; an administrator may do everything."""

    MEMBER = "member"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated sender of a request; `digest` identifies the token."""

    name: str
    role: Role
    digest: str = field(default="", repr=False)


def credential(secret: bytes, key: str) -> str:
    """The credential of the agent with this key."""
    return hmac.new(secret, key.encode(), hashlib.sha256).hexdigest()


def check_credential(secret: bytes, key: str, given: str | None) -> None:
    """Raises: AuthenticationError unless `given` is the credential of exactly this agent."""
    if given is None or not hmac.compare_digest(credential(secret, key).encode(), given.encode()):
        raise AuthenticationError("this is not the credential of that agent")


def authenticate_agent(secret: bytes, claimed: str, given: str | None) -> AgentKey:
    """The agent that claims the key `claimed`, once its credential proves it. Raises: UsageError, AuthenticationError."""
    try:
        key = AgentKey.parse(claimed)
    except ValueError as error:
        raise UsageError(str(error)) from error
    check_credential(secret, str(key), given)
    return key


def bearer(header: str | None) -> str | None:
    """The token in an Authorization header."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def digest_of(token: str) -> str:
    """The SHA-256 under which a token is stored."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


class Tokens:
    """The tokens that this server accepts: the home's own token, which has administrator rights, and those in the store.

    It also holds tickets: short-lived keys for URLs, because a browser cannot send headers with a stream request. They
    live in memory only.
    """

    def __init__(self, home: Home, store: TokenStore) -> None:
        self._home, self._store = home, store
        self._turn = threading.Lock()  # serializes changes
        self._kept = {row.name: row for row in store.tokens() if row.role in set(Role)}
        self._own = ""  # the digest of the home's token
        self._own_seen: tuple[int, int] | None = None  # inode and mtime of the token file when it was last read
        self._tickets: dict[str, tuple[Caller, float]] = {}  # SHA-256 -> caller, expiry on the monotonic clock

    def ensure_admin(self) -> None:
        """Create the home's own token at the first start. It acts as this account, with all rights.

        Raises: OperationError, OSError if the file cannot be read. It is not replaced then: users may hold its token.
        """
        try:
            token = self._home.token_file.read_text().strip()
        except FileNotFoundError:
            token = ""
        except UnicodeDecodeError as error:
            raise OperationError(f"{self._home.token_file} is not text", "remove it: the next start creates one") from error
        if not token:
            write_atomic(self._home.token_file, secrets.token_urlsafe(32).encode() + b"\n", 0o600)
        (self._home.root / "tokens.json").unlink(missing_ok=True)  # older versions without roles kept the digest here

    def caller(self, token: str | None) -> Caller:
        """The caller that this token authenticates. Raises: AuthenticationError."""
        if token is None:
            raise AuthenticationError("this needs a token", _SEND)
        self._read_own()
        digest, found = digest_of(token), None
        for known in self._callers():  # always compare with all of them, so that the time taken reveals nothing
            if hmac.compare_digest(known.digest, digest):
                found = known
        if found is None:
            raise AuthenticationError("the server does not know this token", _UNKNOWN)
        if self._has_expired(found):
            raise AuthenticationError(f"the token of {found.name} has expired", "ask an administrator for another one")
        return found

    def holds(self, caller: Caller) -> bool:
        """Whether the caller's token is still valid."""
        self._read_own()
        return any(one.digest == caller.digest for one in self._callers()) and not self._has_expired(caller)

    def left_s(self, caller: Caller) -> float:
        """Seconds until the caller's token expires."""
        row = self._kept.get(caller.name) if caller.digest != self._own else None
        return float("inf") if row is None or row.expires_s is None else max(0.0, row.expires_s - time.time())

    def known(self) -> list[TokenRow]:
        """All tokens in the store, by name."""
        return sorted(self._kept.values(), key=lambda row: row.name)

    def create(self, name: str, role: Role, by: str, expires_s: float | None) -> tuple[str, TokenRow]:
        """Create a token that is valid for `expires_s` seconds (None: until revoked). Only this call returns its text.

        Raises: UsageError, ConflictError (the name already has one), DiskFullError.
        """
        if not _NAME.match(name):
            hint = "1 to 64 letters, digits and . _ @ -, the first a letter or a digit"
            raise UsageError(f"{name[:80]!r} cannot be the name of a member", hint)
        if expires_s is not None and not 1.0 <= expires_s <= EXPIRES_MAX_S:
            raise UsageError(f"a token expires after 1 s to {EXPIRES_MAX_S / 86400:.0f} days", "write 12h or 30d")
        if len(self._kept) >= TOKENS_MAX:
            raise ConflictError(f"there are {TOKENS_MAX} tokens already", "revoke unused ones: tm token list")
        token, now_s = _PREFIX + secrets.token_urlsafe(32), time.time()
        row = TokenRow(name, digest_of(token), role.value, now_s, by, None if expires_s is None else now_s + expires_s)
        with self._turn:
            if not self._store.add(row):
                raise ConflictError(f"there is a token for {name}", f"for a new one revoke it first: tm token revoke {name}")
            self._kept = {**self._kept, name: row}
        _log.info("%s gave out a token for %s (%s)", by, name, role.value)
        return token, row

    def revoke(self, name: str, by: str) -> None:
        """Invalidate a token from the next request on. Raises: NotFoundError, DiskFullError."""
        with self._turn:
            if not self._store.remove(name):
                raise NotFoundError(f"there is no token for {name[:80]!r}", "those there are: tm token list")
            self._kept = {other: row for other, row in self._kept.items() if other != name}
        _log.info("%s revoked the token of %s", by, name)

    def ticket(self, caller: Caller, now_s: float) -> str:
        """Create a key that opens streams for `caller` for one minute. Raises: ConflictError."""
        self._tickets = {digest: kept for digest, kept in self._tickets.items() if kept[1] > now_s}
        if len(self._tickets) >= _TICKETS_MAX:
            raise ConflictError(f"{_TICKETS_MAX} tickets are open", "wait a minute")
        made = secrets.token_urlsafe(24)
        self._tickets[digest_of(made)] = (caller, now_s + TICKET_S)
        return made

    def ticket_caller(self, ticket: str, now_s: float) -> Caller:
        """The caller a ticket was made for. It expires with the caller's token at the latest. Raises: AuthenticationError."""
        found = self._tickets.get(digest_of(ticket))
        if found is None or found[1] <= now_s or not self.holds(found[0]):
            hint = f"get another one: POST {rest.address('/tickets')}"
            raise AuthenticationError("the ticket is not known or no longer holds", hint)
        return found[0]

    def _callers(self) -> list[Caller]:
        own = [Caller(account_name(), Role.ADMIN, self._own)] if self._own else []
        return own + [Caller(row.name, Role(row.role), row.digest) for row in self._kept.values()]

    def _has_expired(self, caller: Caller) -> bool:
        return self.left_s(caller) <= 0.0

    def _read_own(self) -> None:
        """Read the home's token again when its file has changed. If the file is gone, the token is invalid."""
        try:
            status = self._home.token_file.stat()
            seen = (status.st_ino, status.st_mtime_ns)
            if seen != self._own_seen:
                token = self._home.token_file.read_text().strip()
                self._own, self._own_seen = digest_of(token) if token else "", seen
        except FileNotFoundError:
            self._own, self._own_seen = "", None
        except (OSError, UnicodeDecodeError) as error:  # not proof of a change: keep the token that was read before
            _log.warning("the home's token cannot be read: %s", error)
