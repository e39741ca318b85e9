"""Downloads what a start needs from a remote store into this node's cache, and verifies it on the way."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from trainmaster.agent.transport.remote_store import Denied, Remote
from trainmaster.wire import disks
from trainmaster.wire.names import MANIFEST, blob_name, code_archive, part_lock, part_stored, stored_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

    from trainmaster.wire.launch import Launch, ResumePoint

_AT_ONCE = 4
_BATCH = 64
_PATIENCE_S = 900.0  # how long an unreachable store is retried before the start fails
_MANIFEST_MAX = 1 << 28
_COPY_BYTES = 1 << 20


class DigestMismatch(Exception):
    """The content of the store does not match the recorded digests."""


def code(launch: Launch) -> None:
    """Make sure that the code copy is in this node's cache. Raises: OSError."""
    if launch.get("apart"):
        _code_archive(launch)
    else:
        Remote(launch, _PATIENCE_S).ask("code")  # the server, on the same disk, fetches what is missing


def _code_archive(launch: Launch) -> None:
    """Bring the whole code copy in one request, unless its tree is here: that comes last."""
    layout = launch["code"]
    assert layout is not None
    root, tree = os.path.dirname(layout["objects"]), layout["tree"]
    if os.path.exists(tree):
        return
    os.makedirs(root, exist_ok=True)
    archive = os.path.join(root, f".{os.getpid()}-{os.path.basename(tree)}.tar")
    try:
        _file(Remote(launch, _PATIENCE_S), code_archive(os.path.basename(tree)[: -len(".json")]), archive, None)
        _unpack(archive, root)
    finally:
        with suppress(OSError):
            os.unlink(archive)
    if not os.path.exists(tree):
        raise OSError(f"the code copy came without its list of files ({tree})")


def _unpack(archive: str, root: str) -> None:
    """Lay the archive's files below `root`; each appears whole. What they hold is checked when it is laid out."""
    with tarfile.open(archive, "r:") as members:
        for member in members:
            parts = member.name.split("/")
            content = members.extractfile(member) if parts[0] in ("objects", "trees") and ".." not in parts else None
            if content is None:
                raise OSError(f"the code copy has an entry that does not belong to it: {member.name!r}")
            target = os.path.join(root, member.name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            part = f"{target}.{os.getpid()}.part"
            with open(part, "wb") as file:
                shutil.copyfileobj(content, file, _COPY_BYTES)
            os.rename(part, target)


@contextmanager
def pinned(launch: Launch, point: ResumePoint) -> Iterator[None]:
    """Hold the lock of a cached part, so that cache eviction skips it while it is read."""
    place = _place(launch, point)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(part_lock(place), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def part(launch: Launch, point: ResumePoint, refetch: bool) -> bool:
    """Make sure that this node's part of a checkpoint is in the cache. `refetch`: the cached copy was found to be wrong.

    Returns whether all of it was read from the store now.
    Raises: DigestMismatch; OSError if the store is unreachable, rejects the request, or reports a missing file.
    """
    place = _place(launch, point)
    wanted = point["digests"].get(os.path.basename(place))
    if not refetch and _there(place, wanted):
        os.utime(os.path.join(place, MANIFEST))  # marks it as recently used, so that it is evicted last
        return False
    temporary = f"{place}.{os.getpid()}.fetching"
    for old in (temporary, place):
        disks.discard(old)
    os.makedirs(temporary)
    try:
        _bring(launch, place, wanted, temporary)
        with open(part_stored(place), "w"):
            pass  # the store has it, so the cache may evict it
        os.rename(temporary, place)
    except OSError as error:
        if error.errno is not None and os.path.isdir(place):
            return False  # another agent of this node has downloaded it meanwhile
        raise
    finally:
        disks.discard(temporary)
    return True


def _place(launch: Launch, point: ResumePoint) -> str:
    name = f"n{launch['node_index']}"
    return os.path.join(point["root"], name if name in point["digests"] else "n0")


def _there(place: str, wanted: Optional[str]) -> bool:
    try:
        with open(os.path.join(place, MANIFEST), "rb") as file:
            return hashlib.sha256(file.read(_MANIFEST_MAX)).hexdigest() == wanted
    except OSError:
        return False


def _bring(launch: Launch, place: str, wanted: Optional[str], temporary: str) -> None:
    remote = Remote(launch, _PATIENCE_S)
    identifier = os.path.dirname(place)
    job = os.path.basename(os.path.dirname(identifier))
    prefix = f"checkpoints/{job}/{os.path.basename(identifier)}/{os.path.basename(place)}"
    target = os.path.join(temporary, MANIFEST)
    if _file(remote, f"{prefix}/{MANIFEST}", target, _addresses(remote, [f"{prefix}/{MANIFEST}"])) != wanted:
        raise DigestMismatch(f"{prefix}/{MANIFEST} is not what was committed")
    with open(target, "rb") as manifest:
        files: List[Dict[str, Any]] = json.loads(manifest.read().decode("utf-8", "surrogateescape"))["files"]
    with ThreadPoolExecutor(_AT_ONCE, "fetch") as pool:
        for at in range(0, len(files), _BATCH):
            some = files[at : at + _BATCH]
            names = [f"{prefix}/{blob_name(file['path'])}" for file in some]
            places = {name: os.path.join(temporary, stored_name(file["path"])) for name, file in zip(names, some)}  # noqa: B905
            addresses = _addresses(remote, names)
            bringing = [pool.submit(_file, remote, name, places[name], addresses) for name in names]
            for index, file in enumerate(some):
                if bringing[index].result() != file["sha256"]:
                    raise DigestMismatch(f"{prefix}: {file['path']} is not what was committed")


def _addresses(remote: Remote, names: List[str]) -> Dict[str, Optional[str]]:
    urls: Dict[str, Optional[str]] = remote.ask("get", names=names)["urls"]
    return urls


def _file(remote: Remote, name: str, target: str, addresses: Optional[Dict[str, Optional[str]]]) -> str:
    """Download one blob and return the SHA-256 of the received bytes. `addresses`: None if the server itself sends it."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    first = [addresses[name]] if addresses is not None else []

    def address() -> Optional[str]:
        return None if addresses is None else first.pop() if first else _addresses(remote, [name])[name]

    with open(target, "wb", buffering=0) as file:
        digest = [hashlib.sha256()]

        def begin() -> Callable[[bytes], None]:
            file.seek(0)
            file.truncate()
            digest[0] = hashlib.sha256()

            def take(data: bytes) -> None:
                digest[0].update(data)
                try:
                    while data:
                        data = data[file.write(data) :]
                except OSError as error:  # this node's disk: another try would not help
                    raise Denied(f"{target} cannot be written: {error}") from error

            return take

        remote.get(address, name, begin)
    return digest[0].hexdigest()
