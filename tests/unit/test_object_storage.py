"""The pure parts of object storage, and this machine's cache of a remote store."""

import calendar
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.factory import open_blobs
from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.multipart import MIB, S3Direct, part_bytes
from trainmaster.blobs.sigv4 import Ask, Credentials, Signer
from trainmaster.blobs.transfers import check_reads, check_writes, commit, complete
from trainmaster.blobs.verification import is_stored
from trainmaster.configuration import StorageSettings
from trainmaster.errors import AuthenticationError, NotFoundError, OperationError, UsageError
from trainmaster.home import Home
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.ids import AgentKey
from trainmaster.ports.blobs import Direct
from trainmaster.testing.store_contract import some_attempt, some_job
from trainmaster.wire.names import part_lock, part_stored


def test_an_address_is_signed_as_aws_publishes_it() -> None:
    signer = Signer(Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1")
    at_s = calendar.timegm((2013, 5, 24, 0, 0, 0))
    address = signer.presign(Ask("GET", "https://examplebucket.s3.amazonaws.com/test.txt"), at_s, 86400)
    assert address.endswith("&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


def test_credentials_are_in_no_representation() -> None:
    assert "hidden" not in repr(Signer(Credentials("id", "hidden-secret", "hidden-token"), "r"))


@given(st.integers(0, 5 * 2**40))
def test_parts_are_within_what_s3_takes(size: int) -> None:
    part = part_bytes(size)
    assert part % MIB == 0
    assert 8 * MIB <= part <= 64 * MIB or size > 10_000 * 64 * MIB
    assert -(-size // part) <= 10_000


def test_a_url_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="credentials must not"):
        open_blobs(StorageSettings("s3://user:password@bucket"), Home(tmp_path))
    with pytest.raises(UsageError, match="nosuch"):
        open_blobs(StorageSettings("nosuch://bucket"), Home(tmp_path))
    assert open_blobs(StorageSettings("elsewhere"), Home(tmp_path)).local_path("x") == f"{tmp_path}/elsewhere/x"


def test_agents_keep_to_their_own_names() -> None:
    job = some_job(1, attempt=some_attempt(2))
    name = job.id
    key = AgentKey(name, 2, 0)
    for good in (f"checkpoints/{name}/0002-00001/n0/a/b", f"artifacts/{name}/{'a' * 64}"):
        assert check_writes(job, key, good) == good
    for bad in (
        f"checkpoints/{name}/0001-00001/n0/a",
        f"checkpoints/{name}/0002-00001/n1/a",
        f"checkpoints/{name}/0002-00001/n0",
        "checkpoints/other-1/0002-00001/n0/a",
        f"artifacts/{name}/x",
        "code/objects/aa/bb",
    ):
        with pytest.raises(AuthenticationError):
            check_writes(job, key, bad)
    for good in (f"checkpoints/{name}/0001-00001/n3/a", f"artifacts/{name}/x"):
        assert check_reads(job, key, good) == good
    with pytest.raises(AuthenticationError):
        check_reads(job, key, "checkpoints/other-1/0001-00001/n0/a")


@pytest.mark.parametrize("place", ["memory://{}/sizes", "{}/sizes"])
def test_a_checkpoint_is_in_the_store_if_its_manifest_and_each_file_of_its_size_are(tmp_path: Path, place: str) -> None:
    blobs, part = FsBlobs(place.format(tmp_path)), "checkpoints/train-1/0001-00001/n0"
    manifest = b'{"files": [{"path": "a", "bytes": 3}]}'
    one = Checkpoint("0001-00001", 5, 1, (Part(0, hashlib.sha256(manifest).hexdigest(), 1, 3),))
    found = [is_stored(blobs, "train-1", one)]
    for name, data in (("MANIFEST.json", manifest), ("a", b"ab"), ("a", b"abc"), ("MANIFEST.json", manifest + b" ")):
        blobs.put(f"{part}/{name}", data)
        found.append(is_stored(blobs, "train-1", one))
    assert found == [False, False, False, True, False]


def test_a_part_is_committed_only_whole_and_once(tmp_path: Path) -> None:
    blobs, part = FsBlobs(f"memory://{tmp_path}/blobs"), "checkpoints/train-1/0001-00001/n0"
    manifest = '{"files": [{"path": "a", "bytes": 3}, {"path": "../b", "bytes": 1}]}'
    blobs.put(f"{part}/a", b"abc")
    with pytest.raises(NotFoundError, match="send them again"):
        commit(blobs, part, manifest, {})
    blobs.put(f"{part}/__/b", b"toolong")
    with pytest.raises(NotFoundError, match="wrong size"):
        commit(blobs, part, manifest, {})
    assert not blobs.exists([f"{part}/MANIFEST.json"])[0]
    blobs.put(f"{part}/__/b", b"b")
    commit(blobs, part, manifest, {})
    commit(blobs, part, manifest, {})
    with blobs.open(f"{part}/MANIFEST.json") as file:
        assert file.read().decode() == manifest


@contextmanager
def bucket(there: set[str]) -> Iterator[S3Direct]:
    """A bucket with these objects: a conditional completion of another upload fails."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            kept = self.headers.get("If-None-Match") == "*" and urlsplit(self.path).path in there
            self.send_response(412 if kept else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield S3Direct(f"http://127.0.0.1:{server.server_port}/bucket", "", Signer(Credentials("id", "secret"), "here"))
        server.shutdown()


def test_a_large_object_that_exists_is_said_to_the_agent_and_replaced_if_its_name_is_a_digest() -> None:
    """Any object of the name counted as the agent's file. Only the agent can compare it."""
    part, name = "checkpoints/train-1/0001-00001/n0", f"artifacts/train-1/{'a' * 64}"
    manifest = json.dumps({"files": [{"path": "w.pt", "bytes": 9}]})
    uploads = {"upload": "u", "etags": {"1": "e"}}
    with bucket({f"/bucket/{part}/w.pt", f"/bucket/{name}"}) as made:

        class Bucket(FsBlobs):
            @property
            def direct(self) -> Direct:
                return made

        blobs = Bucket("memory://there")
        blobs.put(f"{part}/w.pt", b"old bytes")
        assert complete(blobs, {name: uploads}, {name: 9}) == []
        there = commit(blobs, part, manifest, {f"{part}/w.pt": uploads}, compares=True)
        assert (there, blobs.stat(f"{part}/MANIFEST.json")) == ([f"{part}/w.pt"], None)
        assert commit(blobs, part, manifest, {}, compares=True) == []
        assert blobs.stat(f"{part}/MANIFEST.json") is not None


@pytest.fixture
def cached(tmp_path: Path) -> CachedBlobs:
    return CachedBlobs(FsBlobs(f"memory://{tmp_path}/far"), Cache(tmp_path / "cache", 3000))


def artifact(data: bytes) -> str:
    return f"artifacts/train-1/{hashlib.sha256(data).hexdigest()}"


def test_what_is_read_is_kept_verified_and_bounded(cached: CachedBlobs) -> None:
    names = []
    for number in range(6):
        data = bytes([number]) * 1000
        names.append(artifact(data))
        cached.store.put(names[-1], data)
        with cached.open(names[-1]) as file:
            assert file.read() == data
        os.utime(cached.cache.path(names[-1]), (number, number))
    cached.cache.trim()
    assert cached.cache.size_bytes() <= 3000
    assert [cached.cache.path(name).exists() for name in names] == [False] * 3 + [True] * 3


def test_a_wrong_digest_is_never_served(cached: CachedBlobs) -> None:
    name = artifact(b"good")
    cached.store.put(name, b"evil")
    with pytest.raises(OperationError, match="damaged"):
        cached.open(name)
    cached.store.delete([name])
    cached.store.put(name, b"good")
    cached.open(name).close()
    cached.cache.path(name).write_bytes(b"rot!")
    with cached.open(name) as file:
        assert file.read() == b"good"


def test_what_the_store_lacks_or_somebody_reads_is_not_given_up(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 0)
    places = [tmp_path / "checkpoints" / "train-1" / name / "n0" for name in ("unsent", "read", "idle")]
    for place in places:
        place.mkdir(parents=True)
        (place / "MANIFEST.json").write_bytes(b"{}")
        (place / "weights").write_bytes(b"x" * 100)
        if place != places[0]:
            Path(part_stored(str(place))).touch()
    with open(part_lock(str(places[1])), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        cache.trim()
        assert [place.exists() for place in places] == [True, True, False]
    cache.trim()
    assert [place.exists() for place in places] == [True, False, False]


def test_a_copy_of_code_speaks_for_the_store_until_it_is_removed(cached: CachedBlobs) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    name = f"code/objects/{digest[:2]}/{digest[2:]}"
    cached.put(name, b"x")
    assert cached.exists([name, "code/objects/aa/" + "b" * 62]) == [True, False]
    cached.delete([name])
    assert cached.exists([name]) == [False]
