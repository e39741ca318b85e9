"""Versions of a job's data: fingerprinted by the client, and accepted by the server within bounds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.client import data
from trainmaster.client.data import versions
from trainmaster.errors import UsageError
from trainmaster.model.spec import DataVersion, JobSpec
from trainmaster.server.jobs.data_versions import data_versions
from trainmaster.wire import data as wire_data


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def version(directory: Path, uri: str) -> dict[str, Any]:
    (found,) = versions({"data": {"train": uri}}, directory)
    return found


def written(root: Path) -> Path:
    """A data set of three files."""
    for name, text in {"a.csv": "1,2", "b/c.csv": "3", "b/d.csv": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_paths_are_relative_to_the_work_directory_and_urls_stay(tmp_path: Path) -> None:
    written(tmp_path / "data")
    found = version(tmp_path, "data")
    assert (found["name"], found["uri"], found["exact"], found["files"], found["bytes"]) == (
        "train", str(tmp_path / "data"), True, 3, 4,
    )  # fmt: skip
    assert version(tmp_path / "x" / "..", str(tmp_path / "data" / "a.csv"))["uri"] == str(tmp_path / "data" / "a.csv")
    assert version(tmp_path, "s3://bucket/x") == {"name": "train", "uri": "s3://bucket/x"}
    assert versions({"command": "x"}, tmp_path) == versions({"data": "x"}, tmp_path) == []


def test_the_same_content_has_the_same_digest_wherever_it_lies(tmp_path: Path) -> None:
    one, other = written(tmp_path / "one"), written(tmp_path / "other")
    os.utime(other / "a.csv", (1, 1))
    digest = version(tmp_path, "one")["digest"]
    assert version(tmp_path, "other")["digest"] == digest == version(tmp_path, "one/")["digest"]
    (one / "b" / "d.csv").write_text("x")
    changed = version(tmp_path, "one")["digest"]
    assert changed != digest
    (one / "b" / "d.csv").rename(one / "b" / "e.csv")
    assert version(tmp_path, "one")["digest"] not in (digest, changed)
    assert version(tmp_path, "one/a.csv")["digest"] == version(tmp_path, "other/a.csv")["digest"]


def test_a_link_counts_as_what_it_leads_to_and_one_that_leads_nowhere_not(tmp_path: Path) -> None:
    plain, linked = written(tmp_path / "plain"), tmp_path / "linked"
    (linked / "b").mkdir(parents=True)
    for name in ("a.csv", "b/c.csv", "b/d.csv"):
        (linked / name).symlink_to(plain / name)
    (linked / "nowhere").symlink_to("/nonexistent")
    (tmp_path / "by-link").symlink_to(plain)
    assert version(tmp_path, "linked")["digest"] == version(tmp_path, "plain")["digest"] == version(tmp_path, "by-link")["digest"]


def test_what_is_no_file_is_listed_beside_the_digest_of_the_files(tmp_path: Path) -> None:
    """A new class folder, or a link that leads nowhere, left both digest and stamp as they were."""
    root = written(tmp_path / "data")
    plain = version(tmp_path, "data")
    assert plain["listing"] == version(tmp_path, "data/a.csv")["listing"] == ""

    def listed(change: Callable[[], object]) -> str:
        change()
        found = version(tmp_path, "data")
        assert (found["digest"], found["stamp"]) == (plain["digest"], plain["stamp"]), "as older versions recorded them"
        return str(found["listing"])

    changes: tuple[Callable[[], object], ...] = (
        (root / "class").mkdir, lambda: (root / "class").rename(root / "other"), lambda: (root / "b" / "x").symlink_to("nowhere"),
        lambda: (root / "b" / "circle").symlink_to(".."),
    )  # fmt: skip
    assert len({"", *map(listed, changes)}) == 1 + len(changes)
    (root / "b" / "e.csv").mkdir()
    assert version(tmp_path, "data")["listing"] != version(tmp_path / "data", "b")["listing"]
    (kept,) = data_versions([{**version(tmp_path, "data"), "name": "train"}], SPEC)
    assert (kept.listing, data_versions([GOOD], SPEC)[0].listing) == (version(tmp_path, "data")["listing"], None)
    with pytest.raises(UsageError, match="the listing of train must be"):
        data_versions([{**GOOD, "listing": "x"}], SPEC)


def test_links_to_directories_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    """T4: what a linked directory had was in no digest, so changed data was called equal."""
    outside = tmp_path / "outside" / "deep" / "x.bin"
    for path in (outside, tmp_path / "data" / "a.txt"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1")
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "deep" / "circle").symlink_to(tmp_path / "outside")
    (tmp_path / "data" / "self").symlink_to(tmp_path / "data")
    before = version(tmp_path, "data")
    assert (before["files"], before["exact"]) == (3, True)
    outside.write_bytes(b"2")
    assert version(tmp_path, "data")["digest"] != before["digest"]


def test_beyond_the_bound_names_sizes_and_times_count_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "data")
    monkeypatch.setattr(data, "BYTES_MAX", 3)
    before = version(tmp_path, "data")
    assert (before["exact"], before["bytes"]) == (False, 4)
    os.utime(tmp_path / "data" / "a.csv", (1, 1))
    assert version(tmp_path, "data")["digest"] != before["digest"]


def test_what_was_cut_is_not_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories and links count, too: with 2 directories of 9 files, 8 files were called all of it."""
    for directory in "ab":
        (tmp_path / "data" / directory).mkdir(parents=True)
        for number in range(9):
            (tmp_path / "data" / directory / str(number)).write_text("x")
    assert version(tmp_path, "data")["exact"] is True
    monkeypatch.setattr(wire_data, "ENTRIES_MAX", 20)
    assert (version(tmp_path, "data")["files"], version(tmp_path, "data")["exact"]) == (18, True)
    monkeypatch.setattr(wire_data, "ENTRIES_MAX", 10)
    found = version(tmp_path, "data")
    assert (found["exact"], found["files"], found["doubt"]) == (False, 8, "only the first 10 of its entries were looked at")


def test_a_pipe_or_a_device_has_no_digest_but_a_reason(tmp_path: Path) -> None:
    """It had the digest of nothing, as an exact one."""
    os.mkfifo(tmp_path / "pi\npe")
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "one")
    for uri, name in (("pi\npe", "pi?pe"), ("data", "one"), ("/dev/null", "null")):
        found = version(tmp_path, uri)
        assert found["doubt"] == f"{name} is a pipe, a socket or a device, whose bytes are not read"
        assert {"digest", "exact", "stamp"}.isdisjoint(found)
        (kept,) = data_versions([found], SPEC)
        assert (kept.digest, kept.exact, kept.doubt) == (None, False, found["doubt"])
    (tmp_path / "data" / "file").write_text("x")
    mixed = version(tmp_path, "data")
    assert (mixed["exact"], mixed["files"], mixed["doubt"]) == (False, 1, "one is a pipe, a socket or a device, whose bytes are not read")
    (tmp_path / "empty").mkdir()
    assert version(tmp_path, "empty")["exact"] is True


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"data.train: there is no {tmp_path}/nowhere"):
        version(tmp_path, "nowhere")


SPEC = JobSpec("x", data={"train": "data"})
GOOD = {"name": "train", "uri": "/data", "digest": "0" * 64, "exact": True, "files": 1, "bytes": 2}


def test_the_server_takes_what_fits_the_spec() -> None:
    assert data_versions(None, SPEC) == ()
    assert data_versions([GOOD], SPEC) == (DataVersion("train", "/data", "0" * 64, True, 1, 2),)
    assert data_versions([{"name": "train", "uri": "s3://b"}], SPEC) == (DataVersion("train", "s3://b"),)


@pytest.mark.parametrize(
    "wrong",
    [
        {}, [1], [{**GOOD, "name": "eval"}], [{**GOOD, "uri": "relative"}], [{**GOOD, "uri": 3}], [{**GOOD, "digest": "x"}],
        [{**GOOD, "exact": 1}], [{**GOOD, "files": -1}], [{**GOOD, "bytes": True}], [{**GOOD, "odd": 1}], [{**GOOD, "doubt": 1}], [{**GOOD, "doubt": "a\x1b"}], [GOOD, GOOD], "x",
    ],
)  # fmt: skip
def test_the_server_refuses_what_does_not(wrong: Any) -> None:
    with pytest.raises(UsageError):
        data_versions(wrong, SPEC)
