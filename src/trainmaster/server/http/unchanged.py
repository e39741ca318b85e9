"""Lists that clients poll: `304` where the client has the answer, and no second computation of the same one."""

import hashlib
import threading
import zlib
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from trainmaster.server.http.bodies import Json, encode

_KEPT, _KEPT_MAX_BYTES = 32, 256 * 1024  # answers, and the size of the largest one


class _Kept(NamedTuple):
    version: str
    digest: str
    body: bytes


class Answers:
    """The last answers by path and query, each with the version of the data that it was made of."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}

    def give(self, request: Request, version: str, make: Callable[[], object]) -> Response:
        """The answer of `make`, which reads nothing but data of which `version` was read before.

        Its ETag is the version and the digest of the body: the first alone tells that nothing was written since, the second
        that what was written is nothing to this answer.
        """
        asked = path_and_query(request)
        version = f"{version}-{zlib.crc32(asked):08x}"
        known = request.headers.get("if-none-match", "")
        if f'"{version}-' in known:
            return Response(status_code=304, headers={"ETag": known})
        made = self._made(asked, version, make)
        tag = {"ETag": f'"{version}-{made.digest}"'}
        unchanged = f'-{made.digest}"' in known
        return Response(status_code=304, headers=tag) if unchanged else Response(made.body, 200, tag, Json.media_type)

    def _made(self, asked: bytes, version: str, make: Callable[[], object]) -> _Kept:
        kept = self._kept.get(asked)
        if kept is not None and kept.version == version:
            return kept
        body = encode(make())
        digest = hashlib.sha256(asked + body).hexdigest()[:16]
        made = _Kept(version, digest, body)
        with self._turn:
            self._kept.pop(asked, None)
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            if len(body) <= _KEPT_MAX_BYTES:
                self._kept[asked] = made
        return made


def path_and_query(request: Request) -> bytes:
    """What a request asks for."""
    return bytes(request.scope["path"].encode() + b"?" + request.scope["query_string"])


def answers_of(request: Request) -> Answers:
    """The answers of the application that serves this request."""
    answers = request.app.state.answers
    assert isinstance(answers, Answers)
    return answers
