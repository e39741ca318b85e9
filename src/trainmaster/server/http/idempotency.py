"""Idempotency keys: a retry with the same key gets the first answer, and nothing is done twice."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from trainmaster.errors import UsageError
from trainmaster.server.http.parameters import TEXT_MAX


def idempotency_key(request: Request) -> str:
    """The caller's key, or a random one. Raises: UsageError."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return secrets.token_hex(16)
    if not 1 <= len(key) <= TEXT_MAX or not key.isprintable():
        raise UsageError(f"Idempotency-Key must be 1 to {TEXT_MAX} printable characters")
    return key


def request_digest(request: Request, body: Mapping[str, Any]) -> bytes | None:
    """The digest of a request that has an idempotency key; None without one."""
    return digest(body) if "idempotency-key" in request.headers else None


def digest(body: Mapping[str, Any]) -> bytes:
    """The digest of a request body. `origin` and `key` are left out: a retry may come from another host or shell."""
    asked = {name: value for name, value in body.items() if name not in ("origin", "key")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()[:16]
