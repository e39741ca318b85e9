"""OpenAPI models for tokens. Documentation only, as in `models`."""

from pydantic import Field

from trainmaster.server.http.parameters import TIME_MAX_S, LongText
from trainmaster.server.schemas.described import Described


class NewToken(Described):
    """A token to create."""

    name: str = Field(description="the member's name: letters, digits and . _ @ -", max_length=64)
    role: LongText = Field("member", description="member: sees everything, changes its own jobs; admin: everything")
    expires_s: float | None = Field(None, gt=0, le=TIME_MAX_S, description="seconds; null: until it is revoked")


class TokenView(Described):
    """A token, without its text."""

    name: str
    role: str
    created_s: float
    made_by: str
    expires_s: float | None = Field(description="when it expires; null: never")
    expired: bool


class TokenGiven(TokenView):
    """A new token; only this response contains `token`."""

    token: str
    url: str | None = Field(description="where other machines reach the server; null: they do not")
    fingerprint: str | None = Field(description="of the server's own authority, for `tm login`; null: it has none")


class TokenList(Described):
    """The tokens in the store, by name. The home's own administrator token is not listed."""

    tokens: list[TokenView]


class TokenRevoked(Described):
    """The revoked token."""

    name: str
