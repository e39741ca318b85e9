"""The laws of the blob store on S3, throttled and reset, and what a store that refuses says."""

import hashlib
import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from s3_server import BUCKET, ENVIRONMENT, Proxy, clear, proxy, s3_server

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.code import object_name
from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.garbage_collection import Records
from trainmaster.blobs.s3 import S3Blobs
from trainmaster.blobs.transfers import refusal
from trainmaster.blobs.verification import Verification, verify
from trainmaster.configuration import StorageSettings
from trainmaster.errors import NotFoundError, StoreRefusedError, StoreUnavailableError
from trainmaster.ports.blobs import Part
from trainmaster.testing.blobs_contract import BlobsContract, DirectContract, crc32, read, send

pytestmark = pytest.mark.xdist_group("s3")


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with s3_server() as found:
        yield found


@pytest.fixture
def store(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    clear(*address)
    with proxy(address) as found:
        yield found


def opened(store: Proxy) -> S3Blobs:
    return S3Blobs(StorageSettings(f"s3://{BUCKET}/team/a", store.url))


def test_a_bucket_that_is_gone_is_noticed(store: Proxy, tmp_path: Path) -> None:
    """T11: `tm doctor` said that all was well."""
    blobs = CachedBlobs(opened(store), Cache(tmp_path / "cache", 1 << 30))
    assert refusal(blobs) == ""
    gone = S3Blobs(StorageSettings("s3://no-such-bucket/team/a", store.url))
    assert "NoSuchBucket" in refusal(CachedBlobs(gone, blobs.cache))
    assert refusal(FsBlobs(tmp_path)) == ""


class TestS3(BlobsContract, DirectContract):
    @pytest.fixture
    def blobs(self, store: Proxy) -> S3Blobs:
        return opened(store)


class TestOlderS3(DirectContract):
    """It knows no checksums of parts."""

    @pytest.fixture
    def blobs(self, store: Proxy) -> S3Blobs:
        store.compares = False
        return opened(store)


class TestUnrulyS3(BlobsContract, DirectContract):
    """One request in eight is throttled, reset, or done without an answer."""

    @pytest.fixture
    def blobs(self, store: Proxy) -> S3Blobs:
        rng = random.Random(7)

        def fault(method: str, path: str) -> str | None:
            if "X-Amz" in path and method in ("PUT", "GET") and "uploads=" not in path:
                return None  # sent by the test itself, once
            return rng.choice(("slow", "reset", "half")) if rng.random() < 0.125 and method != "POST" else None

        store.fault = fault
        return opened(store)


def test_a_store_that_only_throttles_is_unavailable(store: Proxy) -> None:
    blobs = opened(store)
    store.fault = lambda method, path: "slow"
    with pytest.raises(StoreUnavailableError, match="store x"):
        blobs.put("x", b"1")
    assert blobs.direct is not None
    with pytest.raises(StoreUnavailableError, match="SlowDown"):
        blobs.direct.begin("x", 2**30)


def test_a_store_that_refuses_is_asked_once_and_gives_its_word(store: Proxy) -> None:
    blobs = opened(store)
    store.fault = lambda method, path: "denied"
    assert blobs.direct is not None
    for act in (
        lambda: blobs.put("x", b"1"),
        lambda: blobs.open("x"),
        lambda: blobs.direct.begin("x", 2**30),
        lambda: list(blobs.walk("")),
    ):
        before = len(store.seen)
        with pytest.raises(StoreRefusedError) as caught:
            act()
        assert len(store.seen) == before + 1
        assert "credentials" in caught.value.hint
        assert "secret" not in str(caught.value.as_dict())


def test_a_bucket_that_is_not_there_is_named(store: Proxy) -> None:
    blobs = S3Blobs(StorageSettings("s3://no-such-bucket/x", store.url))
    for act in (lambda: blobs.put("x", b"1"), lambda: list(blobs.walk(""))):
        with pytest.raises(StoreRefusedError, match="NoSuchBucket"):
            act()


def test_a_download_that_breaks_is_taken_up_where_it_broke(store: Proxy) -> None:
    blobs = opened(store)
    data = random.Random(1).randbytes(5 * 2**20)
    blobs.put("x", data)
    turns = itertools.count()
    store.fault = lambda method, path: "half" if method == "GET" and next(turns) < 2 else None
    assert read(blobs, "x") == data


def test_a_part_that_was_damaged_on_its_way_is_refused(store: Proxy) -> None:
    direct = opened(store).direct
    assert direct is not None
    upload = direct.begin("big", 9 * 2**20, crc32=True)
    assert upload.crc32_header
    told = crc32(b"a" * upload.part_bytes)
    address = direct.sign_parts("big", upload.id, {1: told})[1]
    store.fault = lambda method, path: "flip"
    assert send("PUT", address, b"a" * upload.part_bytes, {upload.crc32_header: told})[0] == 400
    store.fault = lambda method, path: None
    assert send("PUT", address, b"a" * upload.part_bytes, {upload.crc32_header: told})[0] == 200
    assert store.compared == 1


def test_without_keys_in_the_environment_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    assert S3Blobs(StorageSettings(f"s3://{BUCKET}", region="eu-central-1")).direct is None


def test_a_completion_whose_answer_was_lost_is_no_loss(store: Proxy) -> None:
    blobs = opened(store)
    direct = blobs.direct
    assert direct is not None
    upload = direct.begin("big", 9 * 2**20)
    assert upload.id
    addresses = direct.sign_parts("big", upload.id, {1: "", 2: ""})
    size = upload.part_bytes
    bodies = {1: b"a" * size, 2: b"b" * (9 * 2**20 - size)}
    parts = {number: Part(send("PUT", addresses[number], body)[1]) for number, body in bodies.items()}
    turns = itertools.count()
    store.fault = lambda method, path: "half" if method == "POST" and next(turns) == 0 else None
    with suppress(NotFoundError):  # the upload is over: the blob is there
        direct.complete("big", upload.id, parts)
    found = blobs.stat("big")
    assert found is not None
    assert found.bytes == 9 * 2**20


class Nothing:
    """A server that has no job on record."""

    def jobs(self) -> tuple[()]:
        return ()


def test_a_damaged_object_is_repaired_in_the_bucket_and_put_anew_by_an_upload(store: Proxy, tmp_path: Path) -> None:
    """The put kept what was there, and "repaired: yes" was said."""
    good, bad = b"print(1)\n", b"print(2)\n"
    name = object_name(hashlib.sha256(good).hexdigest())
    plain = opened(store)
    blobs = CachedBlobs(plain, Cache(tmp_path / "cache", 1 << 30))
    blobs.put(name, good)
    plain.put_stream(name, iter((bad,)))
    found = Verification(repair=True)
    verify(blobs, cast("Records", Nothing()), found, lambda name: False)
    assert ([(one.name, one.repaired) for one in found.damaged], read(plain, name)) == ([(name, True)], good)
    plain.put_stream(name, iter((bad,)))
    blobs.put(name, good)
    assert read(plain, name) == good
