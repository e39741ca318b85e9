"""Parses the versions of a job's data, as the client determined them."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.model.redaction import without_signature
from trainmaster.model.spec import DataVersion, JobSpec
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import LONG_MAX

_KNOWN = frozenset(field.name for field in fields(DataVersion))
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_DOUBT_MAX = 500
_HINT = "each is {name, uri, digest, exact, files, bytes, stamp, doubt, listing}, for an entry of the spec's data"


def data_versions(value: Any, spec: JobSpec) -> tuple[DataVersion, ...]:
    """The data versions of a submit. Raises: UsageError."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UsageError("data must be a list of objects", _HINT)
    versions = tuple(_version(item, spec) for item in value)
    if len({version.name for version in versions}) < len(versions):
        raise UsageError("data names an entry twice", _HINT)
    return versions


def _version(item: Mapping[str, Any], spec: JobSpec) -> DataVersion:
    bodies.reject_unknown(item, _KNOWN, "data")
    name, uri, digest = item.get("name"), item.get("uri"), item.get("digest")
    if not isinstance(name, str) or name not in spec.data:
        raise UsageError(f"data names {name!r}, which is not an entry of the spec's data", _HINT)
    if not isinstance(uri, str) or len(uri) > LONG_MAX or not (uri.startswith("/") or "://" in uri) or "\0" in uri:
        raise UsageError(f"data: the uri of {name} must be an absolute path or a URL", _HINT)
    if digest is not None and not (isinstance(digest, str) and _DIGEST.match(digest)):
        raise UsageError(f"data: the digest of {name} must be a SHA-256 in hexadecimal", _HINT)
    exact, numbers = item.get("exact", False), (item.get("files", 0), item.get("bytes", 0))
    whole = all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63 for number in numbers)
    if not isinstance(exact, bool) or not whole:
        raise UsageError(f"data: exact of {name} must be true or false, files and bytes whole numbers", _HINT)
    stamp = item.get("stamp", "")
    if stamp != "" and not (isinstance(stamp, str) and _DIGEST.match(stamp)):
        raise UsageError(f"data: the stamp of {name} must be a SHA-256 in hexadecimal", _HINT)
    listing = item.get("listing")
    if listing not in (None, "") and not (isinstance(listing, str) and _DIGEST.match(listing)):
        raise UsageError(f"data: the listing of {name} must be a SHA-256 in hexadecimal, or empty", _HINT)
    doubt = item.get("doubt", "")
    if not (isinstance(doubt, str) and len(doubt) <= _DOUBT_MAX and (doubt.isprintable() or not doubt)):
        raise UsageError(f"data: the doubt of {name} must be printable text of at most {_DOUBT_MAX} characters", _HINT)
    return DataVersion(name, without_signature(uri), digest, exact and not doubt, *numbers, stamp, doubt, listing)
