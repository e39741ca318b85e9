"""S3 operations that the client library lacks: multipart uploads whose parts agents send by signed URLs.

The requests are S3's REST API, signed in the query. Throttling, resets and 5xx are retried with jittered back-off.
"""

import http.client
import logging
import random
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from trainmaster.blobs.names import digest_of
from trainmaster.blobs.sigv4 import Ask, Signer
from trainmaster.errors import NotFoundError, StoreRefusedError, StoreUnavailableError
from trainmaster.ports.blobs import Part, Upload

MIB = 1024 * 1024
PART_MIN_BYTES, PART_MAX_BYTES = 8 * MIB, 64 * MIB
_PARTS = 256  # target number of parts, within those bounds
_PARTS_MAX = 10_000  # S3's own limit: larger blobs get larger parts
_EXPIRES_S = 3600
_TIMEOUT_S = 20.0
_TRIES = 6
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 5.0
_LATER = frozenset((408, 429, 500, 502, 503, 504))
_ALGORITHM_HEADER, _ALGORITHM = "x-amz-checksum-algorithm", "CRC32"
_CRC32_HEADER = "x-amz-checksum-crc32"
_CODE = re.compile(rb"<Code>(\w{1,80})</Code>")
_log = logging.getLogger("trainmaster.store")


def part_bytes(size_bytes: int) -> int:
    """The size of a blob's parts: 8 to 64 MiB, in whole MiB; larger only beyond 640 GiB."""
    wanted = max(PART_MIN_BYTES, min(PART_MAX_BYTES, -(-size_bytes // _PARTS)), -(-size_bytes // _PARTS_MAX))
    return -(-wanted // MIB) * MIB


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    algorithm: str  # of the checksums that the store will verify; empty: none

    @property
    def code(self) -> str:
        """S3's error code; empty if there is none. A response with status 200 may contain an error."""
        found = _CODE.search(self.body)
        return found.group(1).decode() if found else "" if self.status < 300 else str(self.status)


class S3Direct:
    """`trainmaster.ports.blobs.Direct` for one bucket and prefix below `base`, the bucket's URL."""

    def __init__(self, base: str, prefix: str, signer: Signer) -> None:
        self._base, self._prefix, self._signer = base.rstrip("/"), prefix, signer
        self._conditional = True  # until the store rejects If-None-Match
        self._compares = True  # until the store rejects checksums of parts

    def begin(self, name: str, size_bytes: int, crc32: bool = False) -> Upload:
        """One PUT up to the minimal part size, parts beyond it. A store that accepts checksums repeats their name."""
        ask = Ask("PUT", self._url(name))
        if size_bytes <= PART_MIN_BYTES:
            return Upload(self._sign(ask))
        ask = Ask("POST", ask.url, {"uploads": ""})
        compared = crc32 and self._compares
        answer = self._call(replace(ask, headers={_ALGORITHM_HEADER: _ALGORITHM}) if compared else ask)
        if compared and answer.status in (400, 501):
            answer = self._call(ask)
            if answer.status < 300:
                self._compares = False
                _log.warning("the store does not support checksums of parts: parts are sent without them")
        found = _text(answer.body, "UploadId")
        header = _CRC32_HEADER if answer.algorithm == _ALGORITHM else ""
        return Upload(id=found, part_bytes=part_bytes(size_bytes), crc32_header=header)

    def sign_parts(self, name: str, upload: str, parts: Mapping[int, str]) -> dict[int, str]:
        """URLs to PUT these parts."""
        url = self._url(name)
        return {
            number: self._sign(
                Ask("PUT", url, {"partNumber": str(number), "uploadId": upload}, {_CRC32_HEADER: crc32} if crc32 else {})
            )
            for number, crc32 in parts.items()
        }

    def complete(self, name: str, upload: str, parts: Mapping[int, Part]) -> bool:
        """Assemble the blob; one whose name is a digest over what is there. Raises: NotFoundError for an unknown upload."""
        listed = "".join(_listed(number, part) for number, part in sorted(parts.items()))
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        ask = Ask("POST", self._url(name), {"uploadId": upload})
        conditional = self._conditional and digest_of(name) is None
        answer = self._call(ask, body, conditional)
        if answer.status == 501 and conditional:
            self._conditional = False
            _log.warning("the store does not support conditional completion: multipart uploads are completed unconditionally")
            answer = self._call(ask, body)
        if answer.status == 412:
            return False
        if answer.code in ("NoSuchUpload", "NoSuchKey", "InvalidPart", "InvalidPartOrder", "EntityTooSmall", "404"):
            raise NotFoundError(f"the store has no such upload of {name} ({answer.code})")
        self._check(answer, f"complete {name}")
        return True

    def abort(self, name: str, upload: str) -> None:
        """Abort an upload. An unknown one is not an error."""
        answer = self._call(Ask("DELETE", self._url(name), {"uploadId": upload}))
        if answer.status != 404:
            self._check(answer, f"abort the upload of {name}")

    def sign_get(self, name: str) -> str:
        """URL to GET a blob."""
        return self._sign(Ask("GET", self._url(name)))

    def uploads(self, prefix: str) -> Iterator[tuple[str, str, float]]:
        """Unfinished uploads, one page of the store's listing at a time."""
        below, marker = self._prefix + prefix, dict[str, str]()
        while True:
            answer = self._call(Ask("GET", f"{self._base}/", {"uploads": "", "prefix": below, **marker}))
            self._check(answer, "list unfinished uploads")
            page = ElementTree.fromstring(answer.body)
            for item in page.iterfind("{*}Upload"):
                key, upload, begun = (item.findtext(f"{{*}}{tag}") or "" for tag in ("Key", "UploadId", "Initiated"))
                if key.startswith(below):  # a store may ignore the prefix
                    yield key.removeprefix(self._prefix), upload, datetime.fromisoformat(begun).timestamp()
            if page.findtext("{*}IsTruncated") != "true":
                return
            following = page.findtext("{*}NextKeyMarker") or "", page.findtext("{*}NextUploadIdMarker") or ""
            marker = {"key-marker": following[0], "upload-id-marker": following[1]}

    def _url(self, name: str) -> str:
        return f"{self._base}/{quote(self._prefix + name, safe='/-_.~')}"

    def _sign(self, ask: Ask) -> str:
        return self._signer.presign(ask, time.time(), _EXPIRES_S)

    def _check(self, answer: _Answer, what: str) -> None:
        """Raises: StoreRefusedError unless the response is a success."""
        if answer.status >= 300 or answer.code:
            raise refused(what, answer.code)

    def _call(self, ask: Ask, body: bytes = b"", new: bool = False) -> _Answer:
        """One request, retried while the store is slow or unavailable. `new`: only if there is no blob of this name.

        Raises: StoreUnavailableError, StoreRefusedError.
        """
        wrong = ""
        for turn in range(_TRIES):
            if turn:
                time.sleep(random.uniform(0.0, min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0**turn)))
            try:
                answer = self._once(ask, body, new)
            except (OSError, http.client.HTTPException) as error:
                wrong = type(error).__name__  # an error's text may hold the signed address
                continue
            if answer.status in (401, 403):
                raise refused(f"{ask.method} {urlsplit(ask.url).path}", answer.code)
            if answer.status not in _LATER and answer.code not in ("InternalError", "SlowDown"):
                return answer
            wrong = answer.code
        message = f"the store at {urlsplit(ask.url).netloc} does not answer ({wrong})"
        raise StoreUnavailableError(message, "It is retried later.")

    def _once(self, ask: Ask, body: bytes, new: bool) -> _Answer:
        parts = urlsplit(self._sign(ask))
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=_TIMEOUT_S)
        try:
            headers = {**ask.headers, "If-None-Match": "*"} if new else dict(ask.headers)
            connection.request(ask.method, f"{parts.path}?{parts.query}", body, headers)
            response = connection.getresponse()
            return _Answer(response.status, response.read(), response.headers.get(_ALGORITHM_HEADER) or "")
        finally:
            connection.close()


def refused(what: str, code: str) -> StoreRefusedError:
    """The error for a permanent rejection by the store."""
    hint = "Check the credentials in the environment of the server, the bucket's name and its policy; then restart the server."
    return StoreRefusedError(f"the object store refused to {what}: {code}", hint)


def _listed(number: int, part: Part) -> str:
    crc32 = f"<ChecksumCRC32>{escape(part.crc32)}</ChecksumCRC32>" if part.crc32 else ""
    return f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag>{crc32}</Part>"


def _text(body: bytes, name: str) -> str:
    """Text of an XML element. Raises: StoreRefusedError if it is missing."""
    try:
        found = ElementTree.fromstring(body).findtext(f"{{*}}{name}")
    except ElementTree.ParseError:
        found = None
    if not found:
        code = _CODE.search(body)
        raise refused("begin an upload", code.group(1).decode() if code else f"its answer has no {name}")
    return found
