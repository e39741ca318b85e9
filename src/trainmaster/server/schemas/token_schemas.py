"""What `/openapi.json` says of tokens. Documentation only, as in `models`."""

from pydantic import BaseModel, Field

from trainmaster.server.http.parameters import TIME_MAX_S, Words


class NewToken(BaseModel):
    """A token to give out."""

    name: str = Field(description="the member who acts by it: letters, digits and . _ @ -", max_length=64)
    role: Words = Field("member", description="member: sees everything, changes its own jobs; admin: everything")
    expires_s: float | None = Field(None, gt=0, le=TIME_MAX_S, description="seconds; null: until it is revoked")


class TokenView(BaseModel):
    """A token, without what it is proven by."""

    name: str
    role: str
    created_s: float
    made_by: str
    expires_s: float | None = Field(description="when it expires; null: never")
    expired: bool


class TokenGiven(TokenView):
    """A new token; `token` can be read this once."""

    token: str


class TokenList(BaseModel):
    """The tokens that were given out, by name; the home's own, an administrator's, is not among them."""

    tokens: list[TokenView]


class TokenRevoked(BaseModel):
    """The token that holds no more."""

    name: str
