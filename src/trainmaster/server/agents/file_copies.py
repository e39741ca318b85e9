"""`PUT /agent/file`: an agent that shares no disk with the server copies its logs and records into the home.

From there they are read like those of an agent of this machine. Everything from `at` on is replaced: what was cut there is cut
here, and a piece that comes twice is harmless.
"""

import hashlib
import os
import re
from pathlib import Path

from starlette.requests import Request

from trainmaster.errors import DiskFullError, NotFoundError, StaleAttemptError, TooLargeError, UsageError
from trainmaster.home import Home, write_atomic
from trainmaster.model.ids import AgentKey
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.server.http import bodies
from trainmaster.server.runtime import limits, runtime
from trainmaster.server.runtime.workers import STORES
from trainmaster.wire.names import APART, EXIT, LOCK, is_copied

_NAME_MAX = 200
_RECORD = re.compile(r"([0-9a-f]{64})\.json\Z")  # of an environment


async def put(request: Request) -> bodies.Json:
    """Store a piece of a file. Answers its `size` here, which is where the next piece begins."""
    api = runtime.of(request)
    key = runtime.agent(request)
    name, at = request.query_params.get("name", ""), request.query_params.get("at", "")
    if not at.isdecimal() or len(at) > len(str(limits.COPY_MAX_BYTES)):
        raise UsageError(f"at must be an offset, not {at[:80]!r}")
    job = await api.recorded.job_of(key)
    if job is None or job.attempt is None or key.attempt > job.attempt.number:
        raise NotFoundError(f"there is no {key}")
    if StorageKind.LOGS in job.removed:
        raise StaleAttemptError(f"the logs of {key.job} were removed: nothing of them is stored any more")
    async with bodies.memory(request):
        piece = b"".join(await bodies.read(request, "the piece"))
        size = await STORES.run(_store, api.services.home, key, name, (int(at), piece))
    return bodies.Json({"size": size})


def _store(home: Home, key: AgentKey, name: str, content: tuple[int, bytes]) -> int:
    """Returns the size of the file now. Raises: UsageError, TooLargeError, DiskFullError, OSError."""
    at, piece = content
    if at + len(piece) > limits.COPY_MAX_BYTES:
        raise TooLargeError(f"{name[:200]} is longer than {limits.in_words(limits.COPY_MAX_BYTES)}")
    record = _RECORD.match(name)
    if record is not None:
        return _keep_record(home, record[1], at, piece)
    if len(name) > _NAME_MAX or not is_copied(name):
        raise UsageError(f"{name[:200]!r} is no file that an agent copies")
    directory = home.attempt(key.job, key.attempt, key.node_index)
    if (directory / LOCK).exists():
        raise UsageError(f"{key} runs on the server's machine, and its own files are here")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / APART).touch(mode=0o600)
    try:
        return _write(directory / name, at, piece)
    except OSError as error:
        raise DiskFullError(f"{name} of {key} cannot be written: {error}", f"check {home.root}") from error


def _write(path: Path, at: int, piece: bytes) -> int:
    """Replace what the file has from `at` on. A file that is shorter is left as it is. Raises: OSError."""
    if path.name == EXIT:  # whole, or not at all: it says that the agent has ended
        if at == 0:
            write_atomic(path, piece)
        return len(piece)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size < at:
            return size
        if size > at:
            os.ftruncate(descriptor, at)
        done = 0
        while done < len(piece):
            done += os.pwrite(descriptor, piece[done:], at + done)
        return at + len(piece)
    finally:
        os.close(descriptor)


def _keep_record(home: Home, digest: str, at: int, piece: bytes) -> int:
    """Raises: UsageError if it has another digest, or comes in pieces."""
    if at or hashlib.sha256(piece).hexdigest() != digest:
        raise UsageError(f"the environment record has another digest than {digest}")
    home.environments.mkdir(mode=0o700, exist_ok=True)
    write_atomic(home.environments / f"{digest}.json", piece)
    return len(piece)
