"""Access checks and transfers for agents that do not see the store: the server's side of `agent.transport.remote_store`.

An agent may write its own attempt's checkpoints and its job's artifacts. It may read those of its job, and the checkpoint that
the job was forked from. All else is refused. A part of a checkpoint exists once its manifest does, which is put last.
"""

import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.code import check_tree, object_name, tree_name
from trainmaster.errors import AuthenticationError, ConflictError, NotFoundError, TrainmasterError, UsageError
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.ports.blobs import Blobs, Direct, Part
from trainmaster.wire.names import MANIFEST, blob_name

_ASKED_MAX = 256
_NOTHING = "asked-by-the-server"  # a prefix of no blob
_SIZE_MAX = 5 * 2**40
_CRC32 = re.compile(r"([A-Za-z0-9+/]{6}==)?\Z")
_NUMBER = re.compile(r"[1-9][0-9]{0,4}\Z")  # of a part
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_READ_BYTES = 1024 * 1024
_BLOCK = tarfile.BLOCKSIZE


def check_writes(job: Job, key: AgentKey, name: str) -> str:
    """The name, if the agent `key` may write it. Raises: AuthenticationError."""
    parts = name.split("/")
    own = parts[:2] == ["checkpoints", job.id] and len(parts) > 4 and parts[3] == f"n{key.node_index}"
    if own and parts[2].startswith(f"{key.attempt:04d}-") and name != "/".join(parts[:4]):
        return name
    if parts[:2] == ["artifacts", job.id] and len(parts) == 3 and _SHA256.match(parts[2]):
        return name
    raise AuthenticationError(f"{key} may not write {name[:200]!r}")


def check_reads(job: Job, key: AgentKey, name: str) -> str:
    """The name, if the agent `key` may read it. Raises: AuthenticationError."""
    lineage, may_read = job.lineage, [f"checkpoints/{job.id}/", f"artifacts/{job.id}/"]
    if lineage and lineage.checkpoint:
        may_read.append(f"checkpoints/{lineage.owner}/{lineage.checkpoint.id}/")
    if name.startswith(tuple(may_read)):
        return name
    raise AuthenticationError(f"{key} may not read {name[:200]!r}")


def begin(blobs: Blobs, files: Sequence[tuple[str, int]], crc32: bool) -> list[dict[str, Any]]:
    """How to upload each file: {"url"} for one PUT (None: through the server), or the fields of `Upload` for parts.

    `crc32`: the agent can send the checksum of each part.
    """
    if len(files) > _ASKED_MAX:
        raise UsageError(f"at most {_ASKED_MAX} files at once")
    direct, told = blobs.direct, list[dict[str, Any]]()
    for name, size in files:
        if not 0 <= size <= _SIZE_MAX:
            raise UsageError(f"{name[:200]}: {size} is not a valid size")
        upload = direct.begin(name, size, crc32) if direct is not None else None
        if upload is not None and upload.id:
            told.append({"id": upload.id, "part_bytes": upload.part_bytes, "crc32_header": upload.crc32_header})
        else:
            told.append({"url": upload.url if upload is not None else None})
    return told


def sign(blobs: Blobs, name: str, upload: str, numbers: Sequence[int], crc32: Mapping[str, Any]) -> dict[str, str]:
    """URLs to PUT parts, by part number. `crc32` has their checksums by part number, if the store verifies them.

    Raises: UsageError.
    """
    parts = {number: str(crc32.get(str(number), "")) for number in numbers}
    if not all(_CRC32.match(one) for one in parts.values()):
        raise UsageError("a CRC-32 is eight characters of base64")
    if len(numbers) > _ASKED_MAX or not all(1 <= number <= 10_000 for number in numbers):
        raise UsageError(f"at most {_ASKED_MAX} parts at once, numbered from 1 to 10000")
    return {str(n): url for n, url in _direct(blobs).sign_parts(name, upload, parts).items()}


def addresses(blobs: Blobs, names: Sequence[str]) -> dict[str, str | None]:
    """URLs to GET blobs; None: download it from the server."""
    if len(names) > _ASKED_MAX:
        raise UsageError(f"at most {_ASKED_MAX} blobs at once")
    direct = blobs.direct
    return {name: direct.sign_get(name) if direct is not None else None for name in names}


def complete(blobs: Blobs, uploads: Mapping[str, Any], sizes: Mapping[str, int]) -> list[str]:
    """Complete multipart uploads. Returns those that were over, and whose blob is there.

    An earlier request completed it, and its response was lost; or the blob has other bytes, which only a comparison can tell.
    Raises: NotFoundError for an upload that the store has lost.
    """
    there: list[str] = []
    for name, told in uploads.items():
        if not isinstance(told, dict) or name not in sizes:
            raise UsageError(f"{name[:200]}: there is no such upload")
        parts = _parts(name, told)
        try:
            done = _direct(blobs).complete(name, str(told.get("upload")), parts)
        except NotFoundError:
            found = blobs.stat(name)
            if found is None or found.bytes != sizes[name]:
                raise
            done = False
        if not done:
            there.append(name)
    return there


def _parts(name: str, told: Mapping[str, Any]) -> dict[int, Part]:
    """The parts of an upload by their number, as sent by the agent. Raises: UsageError."""
    etags, crc32 = told.get("etags") or {}, told.get("crc32") or {}
    if not isinstance(etags, dict) or not isinstance(crc32, dict) or not all(_NUMBER.match(number) for number in etags):
        raise UsageError(f"{name[:200]}: etags and crc32 must be objects with part numbers as keys")
    return {int(number): Part(str(etag), str(crc32.get(number, ""))) for number, etag in etags.items()}


def commit(blobs: Blobs, part: str, manifest: str, uploads: Mapping[str, Any], compares: bool = False) -> list[str]:
    """Complete a part's uploads, check that every file exists with its size, and only then put the manifest.

    `compares`: the agent compares what `complete` returns with its files first; then nothing else is done yet.
    Raises: UsageError, NotFoundError (something is missing and must be sent again), ConflictError.
    """
    data = manifest.encode("utf-8", "surrogateescape")
    sizes = _sizes(part, manifest)
    over = complete(blobs, uploads, sizes)
    if over and compares:
        return over
    left = dict(sizes)
    for stored in blobs.walk(part):
        if stored.name in left and stored.bytes != left.pop(stored.name):
            blobs.delete([stored.name])
            raise NotFoundError(f"{stored.name} has the wrong size; send it again")
    if left:
        raise NotFoundError(f"{len(left)} files of {part} are not in the store, {min(left)} among them; send them again")
    name = f"{part}/{MANIFEST}"
    there = blobs.stat(name)
    if there is not None:
        with blobs.open(name) as file:
            if hashlib.sha256(file.read()).digest() != hashlib.sha256(data).digest():
                raise ConflictError(f"{part} is committed with a different manifest")
        return []
    blobs.put(name, data)
    return []


def _sizes(part: str, manifest: str) -> dict[str, int]:
    """The size of each blob in a manifest. Raises: UsageError."""
    try:
        files = json.loads(manifest)["files"]
        return {f"{part}/{blob_name(str(file['path']))}": int(file["bytes"]) for file in files}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"the manifest of {part} cannot be understood: {error!r}") from error


def prove(blobs: Blobs, name: str) -> None:
    """Read a content-addressed blob of a local store, unless it is known to be whole. Raises: DamagedError, NotFoundError."""
    if blobs.local_path(name) is None or blobs.exists([name])[0]:
        return
    with blobs.open(name) as file:
        while file.read(_READ_BYTES):
            pass


def trim(blobs: Blobs) -> int:
    """Trim this machine's cache of the store, if there is one. Returns the number of bytes freed."""
    return blobs.cache.trim() if isinstance(blobs, CachedBlobs) else 0


def refusal(blobs: Blobs) -> str:
    """Why a remote store cannot be used now: it is gone, or refuses us. Empty if it answers, or is a directory."""
    if not isinstance(blobs, CachedBlobs):
        return ""
    try:
        next(iter(blobs.store.walk(_NOTHING)), None)
    except (OSError, TrainmasterError) as error:
        return str(error)
    return ""


def bring_code(blobs: Blobs, digests: Iterable[str]) -> None:
    """Load code copies into this machine's cache. Raises: NotFoundError."""
    if not isinstance(blobs, CachedBlobs):
        return
    for digest in digests:
        blobs.bring_code([tree_name(digest)])
        with blobs.open(tree_name(digest)) as file:
            tree = json.loads(file.read())
        check_tree(tree)
        blobs.bring_code([object_name(entry["sha256"]) for entry in tree["entries"] if entry["type"] == "file"])


def code_pieces(blobs: Blobs, digest: str) -> Iterator[bytes]:
    """A code copy as one stream, a tar archive, because a request for each of its files takes long.

    It has `objects/<2 hex>/<62 hex>`, each once, and at its end `trees/<digest>.json`: it is complete if that is there.

    Raises: NotFoundError if anything of it is missing or damaged, and what the store raises.
    """
    bring_code(blobs, [digest])
    with blobs.open(tree_name(digest)) as file:
        tree = file.read()
    entries = json.loads(tree)
    check_tree(entries)
    wanted = {entry["sha256"]: entry["bytes"] for entry in entries["entries"] if entry["type"] == "file"}
    names = [object_name(sha256) for sha256 in wanted]
    lost = [name for name, there in zip(names, blobs.exists(names), strict=True) if not there]
    if lost:
        raise NotFoundError(f"the code copy {digest[:12]} is not whole: {lost[0]} is missing or damaged", "submit it again")
    return _archived(blobs, digest, tree, wanted)


def _archived(blobs: Blobs, digest: str, tree: bytes, wanted: Mapping[str, int]) -> Iterator[bytes]:
    for sha256, size in sorted(wanted.items()):
        yield _head(object_name(sha256), size)
        with blobs.open(object_name(sha256)) as file:
            while data := file.read(_READ_BYTES):
                yield data
        yield _padding(size)
    yield _head(tree_name(digest), len(tree)) + tree + _padding(len(tree)) + bytes(2 * _BLOCK)


def _head(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name.removeprefix("code/"))
    member.size = size
    return member.tobuf()


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _direct(blobs: Blobs) -> Direct:
    """Raises: UsageError."""
    if blobs.direct is None:
        raise UsageError("this store cannot sign URLs")
    return blobs.direct
