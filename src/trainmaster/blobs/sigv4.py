"""AWS Signature Version 4 in the query string: an address that lets whoever has it do one thing for a while. Pure.

Only the host is signed among the headers, and the body is not, as S3 itself does for addresses it gives out.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of the server, from its environment."""

    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs for one region."""

    credentials: Credentials
    region: str

    def presign(self, method: str, url: str, query: Mapping[str, str], now_s: float, expires_s: int) -> str:
        """`url` (without a query, its path quoted) with `query` and a signature that holds for `expires_s` from `now_s`."""
        parts = urlsplit(url)
        stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        values = {
            **query,
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.credentials.key_id}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(expires_s),
            "X-Amz-SignedHeaders": "host",
        }
        if self.credentials.token is not None:
            values["X-Amz-Security-Token"] = self.credentials.token
        line = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(values.items()))
        canonical = "\n".join((method, parts.path or "/", line, f"host:{parts.netloc}", "", "host", "UNSIGNED-PAYLOAD"))
        text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = b"AWS4" + self.credentials.secret.encode()
        for part in (stamp[:8], self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return f"{url}?{line}&X-Amz-Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
