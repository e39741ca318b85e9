"""Blobs on S3 and compatible stores, through obstore (extra `s3`). Credentials come from the server's environment only.

Blobs are immutable, so a put is conditional (`If-None-Match: *`) if the store supports that: the first put wins, and a second
one of the same name is not an error. What is named by its digest is put over what is there: equal bytes, or damaged ones.
"""

import io
import logging
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from trainmaster.blobs.multipart import MIB, S3Direct, refused
from trainmaster.blobs.names import check_name, digest_of
from trainmaster.blobs.sigv4 import Credentials, Signer
from trainmaster.configuration import StorageSettings
from trainmaster.errors import NotFoundError, StoreUnavailableError, UsageError
from trainmaster.ports.blobs import Direct, Stored

_HEADS = 16  # concurrent
_STREAM_CHUNK = 8 * MIB
_STREAM_PARTS = 4  # concurrent parts of one stream: what it holds in memory
_TRIES = 5
_DELETES = 1000
_REGION = "us-east-1"
_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_log = logging.getLogger("trainmaster.store")


class S3Blobs:
    """`trainmaster.ports.blobs.Blobs` in a bucket, below a prefix."""

    def __init__(self, settings: StorageSettings) -> None:
        try:
            import obstore  # noqa: PLC0415  an extra
            from obstore.store import S3Store  # noqa: PLC0415  likewise
        except ImportError as error:
            hint = "install it in the environment of tm: pip install obstore"
            raise UsageError(f"{settings.url} needs the package obstore, which is not installed", hint) from error
        url = urlsplit(settings.url or "")
        region = settings.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION
        endpoint = settings.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        bucket, self._prefix = url.netloc, url.path.strip("/")
        by_path = endpoint is not None or "." in bucket
        self._obs: Any = obstore
        given: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        self._store: Any = S3Store(
            bucket,
            prefix=self._prefix or None,
            region=region,
            virtual_hosted_style_request=not by_path,
            client_options={"allow_http": True, "timeout": "60s", "connect_timeout": "5s"},
            retry_config={
                "max_retries": _TRIES,
                "retry_timeout": timedelta(seconds=30),
                "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
            },
            **given,
        )
        self._conditional = True
        host = endpoint or f"https://s3.{region}.amazonaws.com"
        base = f"{host.rstrip('/')}/{bucket}" if by_path else f"https://{bucket}.s3.{region}.amazonaws.com"
        credentials = credentials_of_environment()
        prefix = f"{self._prefix}/" if self._prefix else ""
        self._direct = S3Direct(base, prefix, Signer(credentials, region)) if credentials is not None else None

    @property
    def direct(self) -> Direct | None:
        """None if the environment has no key (a role or a file is used): bytes then pass through the server."""
        return self._direct

    def put(self, name: str, data: bytes) -> None:
        """Store once. An existing blob of that name is kept, unless the name is a digest."""
        check_name(name)
        for turn in range(_TRIES):  # the client library does not retry a conditional write whose response was lost
            try:
                self._put(name, data)
                return
            except StoreUnavailableError:
                if turn == _TRIES - 1:
                    raise
                time.sleep(random.uniform(0.0, 0.2 * 2.0**turn))

    def _put(self, name: str, data: bytes) -> None:
        with _translated(f"store {name}"):
            if self._conditional and digest_of(name) is None:
                try:
                    self._obs.put(self._store, name, data, mode="create")
                    return
                except self._obs.exceptions.AlreadyExistsError:
                    return
                except (self._obs.exceptions.NotSupportedError, self._obs.exceptions.GenericError) as error:
                    if "NotImplemented" not in str(error) and not isinstance(error, self._obs.exceptions.NotSupportedError):
                        raise
                    self._conditional = False
                    _log.warning("the store does not support conditional writes: the last of two writers of one name wins")
            self._obs.put(self._store, name, data)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store a stream in parts. The blob appears only when it is complete."""
        check_name(name)
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                yield chunk

        with _translated(f"store {name}"):
            self._obs.put(self._store, name, counted(), chunk_size=_STREAM_CHUNK, max_concurrency=_STREAM_PARTS)
        return size

    def open(self, name: str) -> BinaryIO:
        """Open a blob as a stream. A broken connection is resumed at its position."""
        check_name(name)
        return cast(BinaryIO, io.BufferedReader(_Reading(self._obs, self._store, name), MIB))

    def exists(self, names: list[str]) -> list[bool]:
        """Which blobs exist; checked concurrently."""
        if len(names) == 1:
            return [self.stat(names[0]) is not None]
        with ThreadPoolExecutor(_HEADS, "exists") as pool:
            return [found is not None for found in pool.map(self.stat, names)]

    def stat(self, name: str) -> Stored | None:
        """Size and time; None if it does not exist."""
        check_name(name)
        try:
            with _translated(f"look at {name}"):
                meta = self._obs.head(self._store, name)
        except NotFoundError:
            return None
        return Stored(name, meta["size"], meta["last_modified"].timestamp())

    def walk(self, prefix: str) -> Iterator[Stored]:
        """The blobs below `prefix`, one page of the store's listing at a time."""
        with _translated(f"list {prefix or 'everything'}"):
            for page in self._obs.list(self._store, prefix or None, chunk_size=_DELETES):
                for meta in page:
                    yield Stored(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def names(self, prefix: str) -> list[str]:
        """The last parts of the names directly below `prefix`, from a listing that does not go deeper."""
        with _translated(f"list {prefix}"):
            found = self._obs.list_with_delimiter(self._store, prefix)
        paths = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def delete(self, names: Sequence[str]) -> None:
        """Remove blobs, a thousand per request."""
        for at in range(0, len(names), _DELETES):
            some = [check_name(name) for name in names[at : at + _DELETES]]
            with _translated(f"remove {some[0]}"):
                self._obs.delete(self._store, some)

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix`, the blob of that name, and unfinished uploads."""
        check_name(prefix)
        found = [prefix]
        for stored in self.walk(prefix):
            found.append(stored.name)
            if len(found) == _DELETES:
                self.delete(found)
                found.clear()
        self.delete(found)
        if self._direct is not None:
            for name, upload, _ in self._direct.uploads(f"{prefix}/"):
                self._direct.abort(name, upload)

    def local_path(self, name: str) -> str | None:
        """None: the store is not a directory."""
        return None


class _Reading(io.RawIOBase):
    """A stream over one blob."""

    def __init__(self, obs: Any, store: Any, name: str) -> None:
        self._obs, self._store, self._name = obs, store, name
        self._at, self._left = 0, b""
        with _translated(f"read {name}"):
            answer = obs.get(store, name)
        self._size: int = answer.meta["size"]
        self._stream = iter(answer.stream(min_chunk_size=MIB))

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        """As `io.RawIOBase`. Raises: StoreUnavailableError if it fails repeatedly."""
        if not self._left:
            self._left = self._next()
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _next(self) -> bytes:
        for turn in range(_TRIES + 1):
            if self._at >= self._size:
                return b""
            try:
                if turn:
                    time.sleep(0.1 * 2**turn)
                    answer = self._obs.get(self._store, self._name, options={"range": (self._at, self._size)})
                    self._stream = iter(answer.stream(min_chunk_size=MIB))
                data = bytes(next(self._stream))
            except (StopIteration, self._obs.exceptions.GenericError, OSError):
                continue
            self._at += len(data)
            return data
        raise StoreUnavailableError(f"{self._name} broke off after {self._at} of {self._size} bytes", "Try again.")


def credentials_of_environment() -> Credentials | None:
    """The key in the environment; None if the client library must find credentials itself (a role, a file)."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN") or None) if key and secret else None


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Translate obstore's errors into ours. Only the error code is kept: the text may contain secrets."""
    from obstore import exceptions  # noqa: PLC0415  an extra

    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise refused(what, "NoSuchBucket") from None
        raise NotFoundError(f"there is no such blob: could not {what}") from None
    except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise refused(what, _code(error)) from None
    except exceptions.AlreadyExistsError:
        raise
    except (exceptions.BaseError, ConnectionError, TimeoutError) as error:
        code = _code(error)
        if code in ("NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidBucketName"):
            raise refused(what, code) from None
        hint = "It is retried later." if code != "NotImplemented" else "The store lacks a required feature."
        raise StoreUnavailableError(f"the store could not {what}: {code}", hint) from None


def _code(error: BaseException) -> str:
    found = _CODE.search(str(error))
    return found.group(1) if found else type(error).__name__
