"""Contract suite for `trainmaster.ports.blobs`: subclass it once per store.

A subclass provides the fixture `blobs`, an empty store.
"""

import base64
import http.client
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from trainmaster.errors import NotFoundError, TrainmasterError, UsageError
from trainmaster.ports.blobs import Blobs, Direct, Part

MIB = 1024 * 1024


def read(blobs: Blobs, name: str) -> bytes:
    """Read a whole blob."""
    with blobs.open(name) as file:
        return file.read()


def crc32(data: bytes) -> str:
    """The CRC-32 in base64, as signed URLs and their headers contain it."""
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


def send(method: str, address: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, str, bytes]:
    """Send a request to a signed URL. Returns status, ETag and body."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    try:
        connection.request(method, f"{url.path}?{url.query}", data, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.headers.get("ETag", ""), response.read()
    finally:
        connection.close()


class BlobsContract:
    """Laws of every store."""

    def test_what_is_put_is_there(self, blobs: Blobs) -> None:
        blobs.put("a/b/c", b"one")
        blobs.put("a/b/c", b"one")
        blobs.put("a/d", b"")
        assert (read(blobs, "a/b/c"), read(blobs, "a/d")) == (b"one", b"")
        assert blobs.exists(["a/b/c", "a/b", "a/d", "x"]) == [True, False, True, False]
        assert blobs.exists([]) == []
        found = blobs.stat("a/b/c")
        assert found is not None
        assert (found.name, found.bytes) == ("a/b/c", 3)
        assert blobs.stat("a/b") is None
        assert blobs.stat("x/y") is None

    def test_what_is_not_there_is_said_so(self, blobs: Blobs) -> None:
        for name in ("never", "never/there"):
            with pytest.raises(NotFoundError):
                blobs.open(name).close()

    def test_a_walk_finds_all_below_a_prefix_and_nothing_beside_it(self, blobs: Blobs) -> None:
        for name in ("a/1", "a/b/2", "ab/3", "c d/é+&%.bin"):
            blobs.put(name, name.encode())
        found = {stored.name: stored.bytes for stored in blobs.walk("")}
        assert found == {name: len(name.encode()) for name in ("a/1", "a/b/2", "ab/3", "c d/é+&%.bin")}
        assert sorted(stored.name for stored in blobs.walk("a")) == ["a/1", "a/b/2"]
        assert list(blobs.walk("nothing")) == []
        assert all(stored.modified_s > 1e9 for stored in blobs.walk(""))

    def test_the_names_directly_below_a_prefix(self, blobs: Blobs) -> None:
        for name in ("a/1", "a/b/2", "a/b/3", "a/b2/4", "ab/5"):
            blobs.put(name, b"x")
        assert sorted(blobs.names("a")) == ["1", "b", "b2"]
        assert blobs.names("nothing") == []

    def test_removing_is_idempotent_and_takes_nothing_else(self, blobs: Blobs) -> None:
        for name in ("a/1", "a/b/2", "a/b2", "ab/3"):
            blobs.put(name, b"x")
        blobs.delete(["a/1", "a/never"])
        blobs.delete(["a/1"])
        blobs.delete([])
        blobs.delete_tree("a/b")
        blobs.delete_tree("a/b")
        blobs.delete_tree("none")
        assert sorted(stored.name for stored in blobs.walk("")) == ["a/b2", "ab/3"]
        blobs.delete_tree("a/b2")
        assert [stored.name for stored in blobs.walk("")] == ["ab/3"]

    @pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\0b", "a" * 300, "a/" * 600 + "b"])
    def test_names_stay_inside(self, blobs: Blobs, name: str) -> None:
        for act in (
            lambda: blobs.put(name, b""),
            lambda: blobs.put_stream(name, [b""]),
            lambda: blobs.open(name),
            lambda: blobs.stat(name),
            lambda: blobs.delete([name]),
            lambda: blobs.delete_tree(name),
        ):
            with pytest.raises(UsageError, match="is not a blob's name"):
                act()

    def test_a_stream_is_there_whole(self, blobs: Blobs) -> None:
        chunks = [bytes([n]) * MIB for n in range(20)]
        assert blobs.put_stream("big/one", iter(chunks)) == 20 * MIB
        assert read(blobs, "big/one") == b"".join(chunks)
        with blobs.open("big/one") as file:
            assert file.read(10) == b"\0" * 10
            assert len(file.read(MIB)) == MIB
        assert blobs.put_stream("big/none", iter([])) == 0
        assert read(blobs, "big/none") == b""

    def test_a_stream_that_breaks_off_leaves_nothing(self, blobs: Blobs) -> None:
        def broken() -> Iterator[bytes]:
            for _ in range(12):
                yield b"x" * MIB
            raise ValueError("the sender is gone")

        with pytest.raises(ValueError, match="the sender is gone"):
            blobs.put_stream("broken/one", broken())
        assert blobs.stat("broken/one") is None
        assert list(blobs.walk("broken")) == []

    def test_of_many_writers_of_one_name_one_wins_whole(self, blobs: Blobs) -> None:
        data = [bytes([n]) * 100_000 for n in range(6)]
        threads = [threading.Thread(target=blobs.put, args=("x/y", each)) for each in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read(blobs, "x/y") in data


class DirectContract:
    """Further laws of a store that agents access directly."""

    @pytest.fixture
    def direct(self, blobs: Blobs) -> Direct:
        """The store's signed URLs."""
        assert blobs.direct is not None
        return blobs.direct

    def test_a_small_file_is_one_put_and_one_get(self, blobs: Blobs, direct: Direct) -> None:
        name = "checkpoints/j-1/0001-00001/n0/out/a b+c&d=é.pt"
        upload = direct.begin(name, 5)
        assert upload.url is not None
        assert send("PUT", upload.url, b"hello")[0] == 200
        assert read(blobs, name) == b"hello"
        assert send("GET", direct.sign_get(name))[2] == b"hello"

    def test_a_large_file_is_one_object_of_parts_and_there_only_when_completed(self, blobs: Blobs, direct: Direct) -> None:
        size = 20 * MIB
        upload = direct.begin("big", size, crc32=True)
        assert upload.url is None
        assert 5 * MIB <= upload.part_bytes <= 64 * MIB
        data = bytes(range(256)) * (size // 256)
        pieces = {at // upload.part_bytes + 1: data[at : at + upload.part_bytes] for at in range(0, size, upload.part_bytes)}
        sums = {number: crc32(piece) if upload.crc32_header else "" for number, piece in pieces.items()}
        addresses = direct.sign_parts("big", upload.id, sums)
        parts = {}
        for number, piece in pieces.items():
            headers = {upload.crc32_header: sums[number]} if upload.crc32_header else {}
            parts[number] = Part(send("PUT", addresses[number], piece, headers)[1], sums[number])
        assert blobs.stat("big") is None
        assert [(name, begun) for name, begun, _ in direct.uploads("")] == [("big", upload.id)]
        direct.complete("big", upload.id, parts)
        assert read(blobs, "big") == data
        assert list(direct.uploads("")) == []
        with suppress(NotFoundError):  # completed before: some stores still know the upload, some do not
            direct.complete("big", upload.id, parts)
        assert read(blobs, "big") == data

    def test_an_upload_given_up_leaves_nothing(self, blobs: Blobs, direct: Direct) -> None:
        upload = direct.begin("gone/one", 20 * MIB)
        send("PUT", direct.sign_parts("gone/one", upload.id, {1: ""})[1], b"x" * upload.part_bytes)
        direct.abort("gone/one", upload.id)
        assert list(direct.uploads("gone")) == []
        with pytest.raises(TrainmasterError):
            direct.complete("gone/one", upload.id, {1: Part('"x"')})
        assert blobs.stat("gone/one") is None
        upload = direct.begin("gone/two", 20 * MIB)
        blobs.delete_tree("gone")
        assert list(direct.uploads("gone")) == []
