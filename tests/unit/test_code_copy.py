"""The code copy: what is copied, linked or refused, inside git and outside; and the recorded origin."""

import errno
import hashlib
import io
import os
import platform
import socket
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from code_trees import git, own_cache, repository, said, shown, write

from trainmaster.agent.launch.work_directory import lay_out
from trainmaster.blobs.code import store_tree, store_zip, tree_name
from trainmaster.blobs.fs import FsBlobs
from trainmaster.client.code_copy.digests import Digests
from trainmaster.client.code_copy.gather import Limits, gather, pack_zip
from trainmaster.client.code_copy.listing import Aside, GitState, git_state
from trainmaster.client.goes_along import ALL
from trainmaster.client.origin import origin
from trainmaster.errors import OperationError, TooLargeError, UsageError
from trainmaster.model.spec import Origin

__all__ = ["own_cache"]  # a fixture that holds for every test here


def test_git_decides_what_is_copied(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {".gitignore": "data/\n*.pt\n*.pyc\n__pycache__/\n", "train.py": "1", "pkg/a.py": "2",
        "old.py": "3"})
    write(root, {"data/x.bin": "x", "pkg/w.pt": "w", "pkg/__pycache__/a.pyc": "", "new/b.py": "4", "ünï cödé.py": "5"})
    (root / "old.py").unlink()
    gathered = gather(root)
    assert shown(gathered) == {
        ".gitignore": "file", "data": "link", "new/b.py": "file", "pkg/a.py": "file", "pkg/w.pt": "link", "train.py": "file",
        "ünï cödé.py": "file",
    }  # fmt: skip
    assert (gathered.git_commit, gathered.git_dirty) == (git(root, "rev-parse", "HEAD"), True)
    assert (gathered.files, gathered.linked, gathered.left_out, said(gathered)) == (5, 2, (), [])
    assert gathered.links == (Aside("data", "git ignores it"), Aside("pkg/w.pt", "git ignores it"))
    entry = gathered.tree["entries"][-1]
    assert entry == {"path": "ünï cödé.py", "type": "file", "sha256": hashlib.sha256(b"5").hexdigest(), "mode": 0o644,
        "bytes": 1}


def test_caches_that_a_repository_does_not_ignore_do_not_go_along(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a.py": "1", "kept.pyc": "2"})
    write(root, {"__pycache__/a.pyc": "", ".DS_Store": "", "b.pyc": ""})
    gathered = gather(root)
    assert (shown(gathered), gathered.git_dirty) == ({"a.py": "file", "kept.pyc": "file"}, False)


def test_a_clean_repository_and_a_new_one(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a.py": "1"})
    assert git_state(str(root)) == GitState(git(root, "rev-parse", "HEAD"))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "-q")
    write(fresh, {"a.py": "1"})
    gathered = gather(fresh)
    assert (shown(gathered), gathered.git_commit, gathered.git_dirty) == ({"a.py": "file"}, None, True)
    assert git_state(str(tmp_path)) == GitState()


def test_a_directory_below_the_top_of_a_repository(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {".gitignore": "out/\nbuild/\n", "top.py": "1", "sub/a.py": "2", "sub/b/c.py": "3"})
    write(root, {"sub/out/x": "", "sub/new.py": "", "build/job/train.py": "", "build/job/b/c.py": ""})
    (tmp_path / "way").symlink_to(root / "sub")
    for directory in (root / "sub", tmp_path / "way"):
        assert shown(gather(directory)) == {"a.py": "file", "b/c.py": "file", "new.py": "file", "out": "link"}
    assert shown(gather(root / "build" / "job")) == {"train.py": "file", "b/c.py": "file"}  # itself ignored: as outside git


def test_modes_links_and_odd_files(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"run.sh": "#!/bin/sh", "a.py": "1"})
    (root / "run.sh").chmod(0o750)
    (root / "inside").symlink_to("a.py")
    (root / "outside").symlink_to("../elsewhere")
    (root / "absolute").symlink_to("/etc/hostname")
    os.mkfifo(root / "fifo")
    gathered = gather(root)
    assert shown(gathered) == {"a.py": "file", "run.sh": "file", "inside": "symlink", "outside": "link", "absolute": "symlink"}
    assert {e["path"]: e["mode"] for e in gathered.tree["entries"] if e["type"] == "file"} == {"a.py": 0o644, "run.sh": 0o755}
    assert [e["target"] for e in gathered.tree["entries"] if e["type"] == "symlink"] == ["/etc/hostname", "a.py"]


def test_submodules_and_repositories_inside(tmp_path: Path) -> None:
    library = repository(tmp_path / "library", {"lib.py": "1", ".gitignore": "big/\n"})
    root = repository(tmp_path / "r", {"a.py": "1"})
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    git(root, "commit", "-qm", "y")
    write(root, {"vendor/library/big/x": "", "vendor/library/new.py": ""})
    repository(root / "nested", {"n.py": "1"})
    kinds = shown(gather(root))
    assert kinds == {
        ".gitmodules": "file", "a.py": "file", "nested/n.py": "file", "vendor/library/.gitignore": "file",
        "vendor/library/big": "link",
        "vendor/library/lib.py": "file", "vendor/library/new.py": "file",
    }  # fmt: skip
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(root), str(clone))
    gathered = gather(clone)
    assert said(gathered) == [f"not copied: vendor/library (a submodule that is not checked out); {ALL}"]


def test_a_submodule_at_another_commit_is_a_change(tmp_path: Path) -> None:
    """T4: its files are in the copy, and the repository's state was called clean."""
    library = repository(tmp_path / "library", {"lib.py": "1"})
    root = repository(tmp_path / "r", {"a.py": "1"})
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    git(root, "commit", "-qm", "y")
    assert not gather(root).git_dirty
    write(root / "vendor" / "library", {"lib.py": "2"})
    git(root / "vendor" / "library", "commit", "-qam", "z")
    assert gather(root).git_dirty
    git(root, "add", "vendor/library")
    assert git(root, "commit", "-qm", "z") is not None
    assert not gather(root).git_dirty


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_to_overlook_is_one(tmp_path: Path, flag: str) -> None:
    """T4: the copy had the new file, and the provenance said that nothing differs from the commit."""
    root = repository(tmp_path / "r", {"train.py": "lr = 1\n", "other.py": "2\n", "sub/x.py": "3\n"})
    git(root, "update-index", flag, "train.py", "other.py", "sub/x.py")
    assert (gather(root).git_dirty, gather(root).git_patch) == (False, None)
    write(root, {"train.py": "lr = 2\n"})
    changed = gather(root)
    assert changed.git_dirty
    assert changed.git_patch is not None
    assert b"-lr = 1\n+lr = 2\n" in changed.git_patch.data
    assert b"other.py" not in changed.git_patch.data
    assert git_state(str(root)) == GitState(git(root, "rev-parse", "HEAD"), True, ["train.py"])
    assert git(root, "status", "--porcelain") == "", "the repository's own index is as it was"
    write(root, {"train.py": "lr = 1\n"})
    (root / "other.py").unlink()  # as in a sparse checkout
    assert not gather(root / "sub").git_dirty
    write(root, {"sub/x.py": "4\n"})
    inner = gather(root / "sub").git_patch
    assert inner is not None
    assert b"-3\n+4\n" in inner.data


@pytest.mark.parametrize("there", ["directory", "unreadable", "pipe"])
def test_what_git_overlooks_and_nobody_can_read_is_a_change(tmp_path: Path, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """T4: doubt is not proof that nothing changed."""
    root = repository(tmp_path / "r", {"train.py": "lr = 1\n", "other.py": "2\n"})
    git(root, "update-index", "--skip-worktree", "other.py")
    path = root / "other.py"
    if there == "unreadable":

        def failing(self: Path, real: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
            if self == path:
                raise OSError(errno.EIO, "Input/output error")
            return real(self)

        monkeypatch.setattr(Path, "read_bytes", failing)
    else:
        path.unlink()
        path.mkdir() if there == "directory" else os.mkfifo(path)
    assert git_state(str(root)) == GitState(git(root, "rev-parse", "HEAD"), True, ["other.py"])


def test_too_much_that_is_new_is_refused_by_name(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {"a.py": "1", "tracked.bin": "t" * 4000})
    write(root, {"runs/big.bin": "x" * 3000, **{f"cache/{n}": "y" * 100 for n in range(8)}})
    with pytest.raises(TooLargeError) as caught:
        gather(root, Limits(bytes=3500))
    assert "runs/big.bin (0.0 MiB), cache/ (0.0 MiB, 8 files)" in caught.value.message
    assert ".gitignore" in caught.value.hint
    assert "--in-place" in caught.value.hint
    assert caught.value.details[0] == {"path": "runs/big.bin", "bytes": 3000}
    with pytest.raises(TooLargeError, match="9 files"):
        gather(root, Limits(files=8))
    assert shown(gather(root, Limits(bytes=3800)))["tracked.bin"] == "file"
    assert shown(gather(root, Limits(git_file_bytes=3500)))["tracked.bin"] == "link"


def test_outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(
        tmp_path / "p",
        {
            "train.py": "1", "src/data/loader.py": "1", "data/small.csv": "1", "conf/a.yaml": "1", "weights.bin": "w" * 5000,
            ".venv/bin/python": "", "mine/pyvenv.cfg": "", "src/__pycache__/x.pyc": "", ".mypy_cache/x": "",
            "node_modules/x/y.js": "",
        },
    )  # fmt: skip
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # a socket's path is short
        server.bind("socket")
        gathered = gather(root, Limits(file_bytes=4000))
    assert shown(gathered) == {
        ".venv": "link", "conf/a.yaml": "file", "data": "link", "mine": "link", "node_modules": "link",
        "src/data/loader.py": "file",
        "train.py": "file", "weights.bin": "link",
    }  # fmt: skip
    assert sorted(gathered.left_out) == [Aside(name, "neither a file nor a directory") for name in ("fifo", "socket")]
    assert said(gathered) == [f"linked, not copied: weights.bin; {ALL}"]
    assert (gathered.git_commit, gathered.git_dirty) == (None, False)


def test_outside_git_code_comes_first_and_the_rest_is_linked(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"train.py": "1", "aaa/x": "x" * 900, "src/m.py": "y" * 500, "src/deep/n.py": "z" * 100})
    assert shown(gather(root, Limits(bytes=1000))) == {"train.py": "file", "aaa": "link", "src/m.py": "file",
        "src/deep/n.py": "file"}
    assert shown(gather(root, Limits(files=2))) == {"train.py": "file", "aaa": "link", "src/m.py": "file", "src/deep": "link"}
    with pytest.raises(TooLargeError, match="the work directory itself holds"):
        gather(write(tmp_path / "q", {f"{n}": "" for n in range(5)}), Limits(files=4))


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    for root in (repository(tmp_path / "r", {"a.py": "1"}), write(tmp_path / "p", {"a.py": "1"})):
        with open(os.fsencode(root) + b"/\xff.py", "w"):
            pass
        gathered = gather(root)
        assert (shown(gathered), said(gathered)) == (
            {"a.py": "file"}, [f"not copied: '\\udcff.py' (its name is not UTF-8); {ALL}"],
        )  # fmt: skip


@pytest.mark.parametrize("why", ["absent", "broken"])
def test_git_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    root = write(tmp_path / "r", {"a.py": "1", ".git/HEAD": "nonsense"})
    if why == "absent":
        monkeypatch.setenv("PATH", str(tmp_path))
    gathered = gather(root)
    assert shown(gathered) == {"a.py": "file"}
    assert ("git is not installed" if why == "absent" else "git cannot read this repository") in said(gathered)[0]


def test_digests_are_remembered_only_while_nothing_changed(tmp_path: Path, own_cache: Path) -> None:
    root = write(tmp_path / "p", {"a.py": "old", "b.py": "b"})
    old = 1_700_000_000_000_000_000
    os.utime(root / "a.py", ns=(old, old))
    first = gather(root)
    write(root, {"a.py": "new"})
    os.utime(root / "a.py", ns=(old, old))  # the same size and time: what changed shows in ctime alone
    second = gather(root)
    assert [e["sha256"] for e in second.tree["entries"]] == [hashlib.sha256(text).hexdigest() for text in (b"new", b"b")]
    assert first.tree != second.tree
    for damaged in ("[]", "{", '{"a.py": 1}'):
        own_cache.mkdir(parents=True, exist_ok=True)
        for file in own_cache.glob("*.json"):
            file.write_text(damaged)
        assert gather(root).tree == second.tree


def test_from_the_work_directory_to_the_store_and_out_again(tmp_path: Path) -> None:
    root = repository(tmp_path / "r", {".gitignore": "data/\n", "a.py": "1", "b/run.sh": "2", "same.py": "1"})
    (root / "b/run.sh").chmod(0o755)
    (root / "link").symlink_to("b/run.sh")
    write(root, {"data/x": "d"})
    gathered = gather(root)
    blobs = FsBlobs(tmp_path / "blobs")
    packed = pack_zip(gathered, list(gathered.sources))
    assert packed == pack_zip(gathered, list(gathered.sources))
    assert sorted(zipfile.ZipFile(io.BytesIO(packed)).namelist()) == sorted(gathered.sources)
    assert store_zip(blobs, packed) == 3
    digest = store_tree(blobs, gathered.tree)
    launch = {
        "work": str(tmp_path / "work"), "in_place": False, "fresh": False, "attempt": 1, "checkpoint_path": None,
        "artifacts": [],
        "code": {"tree": blobs.local_path(tree_name(digest)), "objects": blobs.local_path("code/objects"), "source": str(root)},
    }  # fmt: skip
    lay_out(launch)  # type: ignore[arg-type]
    work = tmp_path / "work"
    assert {p.name for p in work.iterdir()} == {".gitignore", "a.py", "b", "same.py", "link", "data"}
    assert ((work / "link").read_text(), (work / "data/x").read_text()) == ("2", "d")
    assert stat.S_IMODE((work / "b/run.sh").stat().st_mode) == 0o755


def test_a_file_that_changes_before_it_is_sent(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"a.py": "1"})
    gathered = gather(root)
    write(root, {"a.py": "2"})
    with pytest.raises(OperationError, match="changes while it is copied"):
        pack_zip(gathered, list(gathered.sources))
    (root / "a.py").unlink()
    with pytest.raises(OperationError, match="cannot be read any more"):
        pack_zip(gathered, list(gathered.sources))


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(TooLargeError, match="which is the whole machine"):
        gather(Path("/"))
    with pytest.raises(OperationError, match="is not a directory"):
        gather(tmp_path / "none")


def test_origin(tmp_path: Path) -> None:
    environment = {"PATH": "/bin", "TZ": "UTC", "SECRET": "x", "LANG": "\udcff"}
    found = origin(tmp_path, ("abc", True), environment)
    user, host = found["user"], socket.gethostname()
    assert user
    umask = os.umask(0o027)
    try:
        found = origin(tmp_path, ("abc", True), environment)
    finally:
        os.umask(umask)
    variables = {"PATH": "/bin", "TZ": "UTC"}
    expected = Origin(user, host, str(tmp_path), platform.python_version(), variables, "abc", True, umask=0o027)
    assert Origin(**found) == expected
    with pytest.raises(UsageError, match=r"the path of the work directory is not UTF-8 text: b'/data/caf\\xe9'"):
        origin(Path(os.fsdecode(b"/data/caf\xe9")))


def test_a_file_that_cannot_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: an error that is no proof of a file's absence leaves it out with a word, never in silence."""
    root = repository(tmp_path, {"train.py": "code", "other.py": "code", "gone.py": "code"})
    (root / "gone.py").unlink()
    look = os.lstat

    def failing(path: str) -> os.stat_result:
        if str(path).endswith("other.py"):
            raise OSError(errno.EIO, "Input/output error", path)
        return look(path)

    monkeypatch.setattr(os, "lstat", failing)
    gathered = gather(root)
    assert set(shown(gathered)) == {"train.py"}
    assert said(gathered) == [f"not copied: other.py (Input/output error); {ALL}"]


def test_a_file_that_holds_more_than_its_size_says_is_not_read_for_ever() -> None:
    """/proc and the like; some of its files have no end."""
    with pytest.raises(OSError, match="longer or shorter than its size"):
        Digests("/proc/self").of("status")


def test_a_full_disk_of_the_cache_of_digests_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text("code")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert gather(root).files == 1
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
