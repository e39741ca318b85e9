"""Uploads of an agent to a remote store: they begin during staging, and nothing counts before all is stored."""

import base64
import hashlib
import json
import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from launches import launch, write
from waiting import deadline

from trainmaster.agent.files.globs import signature
from trainmaster.agent.files.stage import Check, Content, Raced, Source, stage
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.agent.supervise.scans import CheckpointScans
from trainmaster.agent.transport import multipart
from trainmaster.agent.transport.delivery import Delivery
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.agent.transport.upload import Uploader
from trainmaster.blobs import transfers
from trainmaster.server.http import bodies
from trainmaster.wire.names import part_stored

MIB = 1024 * 1024
PART = 8 * MIB
HEADER = "x-amz-checksum-crc32"
WEIGHTS = "checkpoints/digits-1/0001-s1/n0/weights.bin"


class Far:
    """Our server's door and the store behind it, in one; `fault` may answer a part by a status instead."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, bytes]] = {}  # upload -> its parts
        self.names: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}
        self.committed: list[str] = []
        self.compares = True
        self.finished = False  # says once that the uploads are over, and that the blobs are there
        self.at_once, self.most = 0, 0  # bodies being read
        self.lock = threading.Lock()
        self.fault: Callable[[int], int] = lambda number: 0
        self.url = ""

    def put(self, path: str, told: str | None, body: bytes, new: bool = True) -> tuple[int, str]:
        """Status and ETag. `new`: only if there is none."""
        query = parse_qs(urlsplit(path).query)
        upload, number = query["upload"][0], int(query["partNumber"][0])
        status = self.fault(number)
        if status or upload not in self.parts:
            return status or 404, ""
        assert (told == crc32(body)) if self.compares else told is None
        self.parts[upload][number] = body
        return 200, hashlib.md5(body).hexdigest()

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """As `/agent/store`."""
        if asked["do"] == "begin":
            assert asked["crc32"] is True
            return {"uploads": [self._begun(one["name"]) for one in asked["files"]]}
        if asked["do"] == "sign":
            assert len(asked["crc32"]) == (len(asked["numbers"]) if self.compares else 0)
            where = f"{self.url}/store?upload={asked['upload']}&uploadId="
            return {"urls": {str(n): f"{where}&partNumber={n}" for n in asked["numbers"]}}
        if asked["do"] == "abort":
            self.parts.pop(asked["upload"], None)
            return {}
        if asked["do"] == "get":
            return {"urls": {name: f"{self.url}/?name={name}" for name in asked["names"]}}
        if self.finished:
            assert asked["compares"] is True
            self.finished = False
            return {"there": list(asked["uploads"])}
        for name, told in asked["uploads"].items():
            parts = self.parts.pop(told["upload"])
            assert told["etags"] == {str(number): hashlib.md5(body).hexdigest() for number, body in parts.items()}
            assert told["crc32"] == ({str(number): crc32(body) for number, body in parts.items()} if self.compares else {})
            self.objects[name] = b"".join(parts[number] for number in sorted(parts))
        self.committed.append(asked.get("part") or asked["name"])
        return {}

    def _begun(self, name: str) -> dict[str, Any]:
        upload = f"u{len(self.names)}"
        self.names[upload], self.parts[upload] = name, {}
        return {"id": upload, "part_bytes": PART, "crc32_header": HEADER if self.compares else ""}


def crc32(data: bytes) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


@contextmanager
def served(far: Far) -> Iterator[Far]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            with far.lock:
                far.at_once += 1
                far.most = max(far.most, far.at_once)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with far.lock:
                far.at_once -= 1
                status, etag = far.put(self.path, self.headers.get(HEADER), body, self.headers.get("If-None-Match") == "*")
            self._answer(status, b"<Code>BadDigest</Code>" if status == 400 else b"", etag)

        def do_GET(self) -> None:
            self._answer(200, far.objects[parse_qs(urlsplit(self.path).query)["name"][0]], "")

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with far.lock:
                self._answer(200, json.dumps(far.ask(asked)).encode(), "")

        def _answer(self, status: int, data: bytes, etag: str) -> None:
            self.send_response(status)
            self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    far.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield far
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def far() -> Iterator[Far]:
    with served(Far()) as found:
        yield found


class Node:
    """One agent's uploader, and a checkpoint of the SDK's to stage."""

    def __init__(self, root: Path, far: Far) -> None:
        self.launch = launch(root, server_url=far.url, remote=True)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.uploader = Uploader(self.launch, lambda kind, fields: self.told.append((kind, fields)) if kind else None)
        self.failed: list[str] = []
        self.uploader.failed = lambda id, error: self.failed.append(id)
        self.written = root / "written"
        self.written.mkdir()
        (self.written / "weights.bin").write_bytes(os.urandom(5 * PART + 7))

    def stage(self, check: Check) -> dict[str, Any]:
        """As `SdkParts` does."""
        path = self.written / "weights.bin"
        source = Source(str(path), "weights.bin", signature(path.stat()))
        fields = stage(self.launch, "0001-s1", Content("sdk", 1, False, 1, [], [source]), check)
        shutil.rmtree(self.written)
        return fields

    def idle(self) -> None:
        """Wait until nothing is on its way."""
        deadline(lambda: self.uploader.idle, "the uploads to end")


class Watched(Check):
    """Tells the uploader, and lets the staging end only when something has come there."""

    def __init__(self, inner: Check, come: Callable[[], None]) -> None:
        self._inner, self._come = inner, come

    def placed(self, stored: str, path: str, size: int) -> None:
        self._inner.placed(stored, path, size)
        self._come()


@pytest.mark.parametrize("compares", [True, False])
def test_a_large_file_is_on_its_way_before_it_is_digested_and_committed_after(tmp_path: Path, far: Far, compares: bool) -> None:
    far.compares = compares
    node = Node(tmp_path, far)
    data = (node.written / "weights.bin").read_bytes()
    ahead = node.uploader.start_early("0001-s1")
    assert ahead is not None
    assert node.uploader.start_early("0001-s2") is None  # one on its way is enough
    come = lambda: deadline(lambda: len(far.parts.get("u0", {})) == 6, "every part to be sent")  # noqa: E731
    fields = node.stage(Watched(ahead, come))
    assert (far.objects, far.committed, node.told) == ({}, [], [])
    node.uploader.put("staged", fields)
    node.uploader.staging_ended()  # of what is put there is nothing left to end
    node.idle()
    assert far.objects == {WEIGHTS: data}
    assert far.committed == ["checkpoints/digits-1/0001-s1/n0"]
    assert (node.told, node.failed) == ([("staged", fields)], [])
    assert far.names == {"u0": WEIGHTS}  # sent once
    assert 1 < far.most <= multipart._AT_ONCE


def test_what_was_not_staged_after_all_is_given_back(tmp_path: Path, far: Far) -> None:
    node = Node(tmp_path, far)
    ahead = node.uploader.start_early("0001-s1")
    assert ahead is not None

    def changed() -> None:
        deadline(lambda: far.parts.get("u0"), "a part to be sent")
        (node.written / "weights.bin").write_bytes(b"more")

    with pytest.raises(Raced):
        node.stage(Watched(ahead, changed))
    node.uploader.staging_ended()
    node.idle()
    assert (far.names, far.parts, far.committed, node.told) == ({"u0": WEIGHTS}, {}, [], [])


def test_a_part_that_came_damaged_is_sent_again(tmp_path: Path, far: Far) -> None:
    node = Node(tmp_path, far)
    data = (node.written / "weights.bin").read_bytes()
    turns = iter([400, 0, 400])
    far.fault = lambda number: next(turns, 0)
    node.uploader.put("staged", node.stage(Check()))
    node.idle()
    assert far.objects == {WEIGHTS: data}


def test_what_the_store_loses_of_an_upload_begun_ahead_is_sent_once_more(tmp_path: Path, far: Far) -> None:
    node = Node(tmp_path, far)
    data = (node.written / "weights.bin").read_bytes()
    ahead = node.uploader.start_early("0001-s1")
    assert ahead is not None
    far.fault = lambda number: 404 if number == 3 and len(far.names) == 1 else 0
    node.uploader.put("staged", node.stage(ahead))
    node.idle()
    assert (far.objects, far.parts, list(far.names)) == ({WEIGHTS: data}, {}, ["u0", "u1"])


def test_a_store_that_refuses_a_part_sent_ahead_gets_no_manifest(tmp_path: Path, far: Far) -> None:
    node = Node(tmp_path, far)
    ahead = node.uploader.start_early("0001-s1")
    assert ahead is not None
    far.fault = lambda number: 403
    node.uploader.put("staged", node.stage(ahead))
    node.idle()
    assert (far.objects, far.parts, far.committed) == ({}, {}, [])
    assert ([kind for kind, _ in node.told], node.failed) == (["not_kept"], ["0001-s1"])
    assert not Path(node.launch["checkpoint_store"], "0001-s1", "n0").exists()


def test_what_is_in_the_store_is_reported_even_if_the_cache_cannot_note_it(tmp_path: Path, far: Far) -> None:
    """The disk of the node was full: the checkpoint was committed, reported as not kept, and its copy removed."""
    node = Node(tmp_path, far)
    fields = node.stage(Check())
    Path(part_stored(f"{node.launch['checkpoint_store']}/0001-s1/n0")).mkdir()
    node.uploader.put("staged", fields)
    node.idle()
    assert (far.committed, node.told) == (["checkpoints/digits-1/0001-s1/n0"], [("staged", fields)])


@pytest.mark.parametrize("early", [False, True])
def test_an_upload_for_which_there_is_no_thread_ends_no_other_upload(
    tmp_path: Path, far: Far, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that used up its processes ended the thread that uploads: nothing came into the store any more, and the end
    of the attempt waited for it for an hour.
    """
    node = Node(tmp_path, far)
    start, full = threading.Thread.start, [True]

    def starts(thread: threading.Thread) -> None:
        if full[0] and thread.name.startswith("upload_"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    ahead = node.uploader.start_early("0001-s1") if early else None
    fields = node.stage(ahead or Check())
    shutil.copytree(f"{node.launch['checkpoint_store']}/0001-s1", f"{node.launch['checkpoint_store']}/0001-s2")
    node.uploader.put("staged", fields)
    node.idle()
    full[0] = False
    node.uploader.put("staged", {**fields, "id": "0001-s2"})
    node.idle()
    why = {"what": "checkpoint", "name": "of step 1", "why": "can't start new thread"}
    assert node.told == [("not_kept", why), ("staged", {**fields, "id": "0001-s2"})]


@pytest.mark.parametrize("status", [0, 403])
def test_where_a_restart_begins_is_told_by_the_end_of_an_upload(tmp_path: Path, far: Far, status: int) -> None:
    far.fault = lambda number: status
    start = Startup(str(tmp_path), launch(tmp_path, server_url=far.url, remote=True), Wake())
    delivery = Delivery(start.launch, start.wake)
    scans = CheckpointScans(start, Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))), delivery)
    place = write(tmp_path / "ck" / "one-5" / "weights.bin", "x").parent
    scans.take(0, {"t": "c", "step": 5, "directory": str(place), "ranks": "one"})
    deadline(lambda: delivery.idle, "the upload to end")
    for id in [fields["id"] for kind, fields in delivery.results if kind == "staged"]:
        scans.reported(id)
    assert scans._collector is not None
    assert scans._collector.unstored.begins == ("from the beginning" if status else "at step 5")
    told = [fields["text"] for kind, fields in delivery.results if kind == "warned" and fields["text"]]
    assert ["a restart begins from the beginning" in text for text in told] == ([True] if status else [])


def test_small_files_wait_until_they_are_staged(tmp_path: Path, far: Far) -> None:
    node = Node(tmp_path, far)
    (node.written / "weights.bin").write_bytes(b"x" * (PART + 1))
    ahead = node.uploader.start_early("0001-s1")
    assert ahead is not None
    fields = node.stage(ahead)
    assert far.names == {}
    node.uploader.put("staged", fields)
    node.idle()
    assert far.objects == {WEIGHTS: b"x" * (PART + 1)}


class Kept(Far):
    """A store that takes a small file in one request, and keeps the blob that it has under that name."""

    def put(self, path: str, told: str | None, body: bytes, new: bool = True) -> tuple[int, str]:
        name = parse_qs(urlsplit(path).query)["name"][0]
        first = name not in self.objects
        if not new:
            self.objects[name] = body
            return 200, ""
        self.objects.setdefault(name, body)
        return 200 if first else 412, ""

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["do"] == "begin":
            return {"uploads": [{"url": f"{self.url}/?name={one['name']}"} for one in asked["files"]]}
        return super().ask(asked)


@pytest.mark.parametrize("same", [True, False])
def test_a_blob_that_exists_is_taken_for_the_file_only_if_it_has_its_bytes(tmp_path: Path, same: bool) -> None:
    """Old bytes under the name counted as stored: the size was all that was compared before the manifest was committed."""
    with served(Kept()) as far:
        node = Node(tmp_path, far)
        (node.written / "weights.bin").write_bytes(b"new")
        there = b"new" if same else b"old"
        far.objects[WEIGHTS] = there
        node.uploader.put("staged", node.stage(Check()))
        node.idle()
        assert (far.objects, len(far.committed)) == ({WEIGHTS: there}, int(same))
        assert [kind for kind, _ in node.told] == ["staged" if same else "not_kept"]
        assert same or "other bytes" in node.told[0][1]["why"]


@pytest.mark.parametrize("same", [True, False])
def test_a_large_blob_that_exists_is_taken_for_the_file_only_if_it_has_its_bytes(tmp_path: Path, far: Far, same: bool) -> None:
    """Above 8 MiB, a blob of this name always counted as an earlier completion of the same upload."""
    node = Node(tmp_path, far)
    data = (node.written / "weights.bin").read_bytes()
    far.objects[WEIGHTS], far.finished = data if same else b"other" + data[5:], True
    node.uploader.put("staged", node.stage(Check()))
    node.idle()
    assert (len(far.committed), node.told[0][0]) == ((1, "staged") if same else (0, "not_kept"))
    assert same or "other bytes" in node.told[0][1]["why"]


@pytest.mark.parametrize("small", [True, False])
def test_an_artifact_that_is_damaged_in_the_store_is_stored_anew(tmp_path: Path, small: bool) -> None:
    """It was reported as kept if it was large, and as not kept if it was small."""
    with served(Kept() if small else Far()) as far:
        node = Node(tmp_path, far)
        data = os.urandom(9 if small else PART + 1)
        digest = hashlib.sha256(data).hexdigest()
        write(Path(node.launch["artifact_store"]) / digest, data)
        name, fields = f"artifacts/digits-1/{digest}", {"path": "out.pt", "digest": digest, "bytes": len(data)}
        far.objects[name], far.finished = b"rotten" + data[6:], not small
        node.uploader.put("kept", fields)
        node.idle()
        assert (far.objects, node.told) == ({name: data}, [("kept", fields)])


def test_a_name_that_is_not_utf_8_has_one_place_in_the_store(tmp_path: Path, far: Far) -> None:
    """R5: the store's names are UTF-8; agent and server make the same one of a name that is not."""
    node = Node(tmp_path, far)
    path = node.written / os.fsdecode(b"caf\xe9.bin")
    path.write_bytes(b"latin")
    source = Source(str(path), f"out/{path.name}", signature(path.stat()))
    node.uploader.put("staged", stage(node.launch, "0001-00001", Content("glob", 1, False, 1, [], [source]), Check()))
    node.idle()
    part = "checkpoints/digits-1/0001-00001/n0"
    text = Path(node.launch["checkpoint_store"], "0001-00001", "n0", "MANIFEST.json").read_text("ascii")
    assert bodies.parse([json.dumps({"manifest": text}).encode()], "a commit") == {"manifest": text}
    assert (node.told[0][0], transfers._sizes(part, text)) == ("staged", {f"{part}/out/caf\\xe9.bin\\": 5})
    assert list(far.objects) == [f"{part}/out/caf\\xe9.bin\\"]
