"""The port of the issued tokens."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A stored token. `name` is the member that it authenticates."""

    name: str
    digest: str  # SHA-256 in hexadecimal; the token itself is not stored
    role: str
    created_s: float
    made_by: str
    expires_s: float | None = None  # None: never


class TokenStore(Protocol):
    """The issued tokens, written by the api alone. Durable when a call returns."""

    def tokens(self) -> list[TokenRow]:
        """All tokens, by name."""
        ...

    def add(self, row: TokenRow) -> bool:
        """Store a token. False, without any change, if the name is taken. Raises: DiskFullError."""
        ...

    def remove(self, name: str) -> bool:
        """Delete a token. Returns whether it existed. Raises: DiskFullError."""
        ...
