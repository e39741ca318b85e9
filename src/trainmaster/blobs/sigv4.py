"""AWS Signature Version 4 in the query string: URLs that grant one operation for a limited time. Pure.

The body is not signed, as in S3's own presigned URLs. Of the headers, the host is signed, and all that begin with `x-amz-`:
a client that uses the URL must send them unchanged.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, slots=True)
class Credentials:
    """The server's credentials, from its environment."""

    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `url` has a quoted path and no query; header names are in lower case."""

    method: str
    url: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests for one region."""

    credentials: Credentials
    region: str

    def presign(self, ask: "Ask", now_s: float, expires_s: int) -> str:
        """The URL with a query and a signature that is valid for `expires_s` from `now_s`."""
        parts, headers = urlsplit(ask.url), sorted({"host": urlsplit(ask.url).netloc, **ask.headers}.items())
        signed = ";".join(name for name, _ in headers)
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        values = {
            **ask.query,
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.credentials.key_id}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(expires_s),
            "X-Amz-SignedHeaders": signed,
        }
        if self.credentials.token is not None:
            values["X-Amz-Security-Token"] = self.credentials.token
        line = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(values.items()))
        told = "".join(f"{name}:{value}\n" for name, value in headers)
        canonical = "\n".join((ask.method, parts.path or "/", line, told, signed, "UNSIGNED-PAYLOAD"))
        text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = b"AWS4" + self.credentials.secret.encode()
        for part in (stamp[:8], self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return f"{ask.url}?{line}&X-Amz-Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
