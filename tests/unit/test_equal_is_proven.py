"""A law on random trees: what a run can see of its files is equal, or `compare` names it, or says that it did not look at it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from code_trees import git, own_cache
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import launch

from trainmaster.agent.launch.work_directory import lay_out
from trainmaster.client.code_copy.gather import Gathered, Limits, gather
from trainmaster.client.data import versions
from trainmaster.model.spec import CodeCopy, DataVersion
from trainmaster.server.record.not_compared import not_compared
from trainmaster.testing import builders
from trainmaster.wire import code

__all__ = ["own_cache"]  # a fixture that holds for every test here

LIMITS = Limits(bytes=100_000, file_bytes=64, directory_bytes=400, git_file_bytes=64)
NAMES = ("a.py", "b.txt", "sub", "data", "out", "venv", "ünï", "c", "__pycache__", "x.pyc", ".env", ".gitignore")
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
TARGETS = st.sampled_from(("a.py", "../b.txt", "sub", "../sub", ".", "nowhere", "OUT/o.txt", "OUT/dir", "data"))
CONTENTS = st.one_of(st.binary(max_size=20), st.binary(min_size=65, max_size=90), st.sampled_from((b"data\n", b"*.txt\n", b"")))
NODES = st.one_of(st.tuples(st.just("file"), CONTENTS), st.tuples(st.just("link"), TARGETS), st.tuples(st.just("directory"), st.none()))
TREES = st.lists(st.tuples(PATHS, NODES), min_size=1, max_size=8)
CHANGES = st.lists(st.tuples(st.sampled_from(("flip", "mode", "link", "remove", "add", "rename", "empty")), st.integers(0, 99)), min_size=1, max_size=2)


@contextmanager
def place() -> Iterator[Path]:
    """An empty directory, in memory if possible."""
    fast = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() else None)).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def put(path: Path, kind: str, what: Any, outside: Path) -> None:
    """Make one node, unless something else is there or in its way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(what.replace("OUT", str(outside)))
        elif not os.path.lexists(path):
            path.write_bytes(what)
    except OSError:  # also a circle of links
        return


def make(root: Path, nodes: list[tuple[str, tuple[str, Any]]]) -> Path:
    """A work directory, and files outside of it that its links may lead to."""
    outside, work = root / "outside", root / "work"
    (outside / "dir").mkdir(parents=True)
    (outside / "o.txt").write_bytes(b"outside")
    (outside / "dir" / "x.txt").write_bytes(b"inside of it")
    work.mkdir()
    (work / "train.py").write_bytes(b"print()")
    for path, (kind, what) in nodes:
        put(work / path, kind, what, outside)
    return work


def change(root: Path, kind: str, which: int) -> None:
    """One change of something that exists, in the work directory or outside of it."""
    found = sorted(path for path in root.rglob("*") if ".git" not in path.parts)
    wanted: dict[str, Callable[[Path], bool]] = {"link": Path.is_symlink, "add": Path.is_dir, "empty": Path.is_dir}
    fitting = [one for one in found if wanted.get(kind, lambda one: one.is_file() and not one.is_symlink())(one)]
    if not fitting:
        return
    path = fitting[which % len(fitting)]
    if kind == "flip":
        data, status = path.read_bytes(), path.stat()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:] if data else b"x")
        if which % 2:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the time of the change is hidden
    elif kind == "mode":
        path.chmod(path.stat().st_mode ^ 0o111)
    elif kind == "link":
        target = "b.txt" if os.readlink(path) != "b.txt" else "a.py"
        path.unlink()
        path.symlink_to(target)
    elif kind == "remove":
        path.unlink()
    elif kind == "add":
        put(path / f"new{which}.py", "file", b"new", root / "outside")
    elif kind == "empty":
        put(path / f"new{which}", "directory", None, root / "outside")
    else:
        path.rename(path.with_name(f"{path.name}{which}"))


def visible(top: Path) -> dict[str, tuple[bytes, int]]:
    """What a program can read below a directory: contents and whether they can be run, links followed, in no circle."""
    seen: dict[str, tuple[bytes, int]] = {}
    left = [(top, "", (top.resolve(),))]
    while left:
        directory, shown, above = left.pop()
        for path in sorted(directory.iterdir()):
            name = f"{shown}/{path.name}"
            if path.is_file():
                seen[name] = path.read_bytes(), path.stat().st_mode & 0o100
            elif path.is_dir():
                seen[f"{name}/"] = b"", 0
                if path.resolve() not in above:
                    left.append((path, name, (*above, path.resolve())))
    return seen


def seen_by_a_run(root: Path, gathered: Gathered) -> dict[str, tuple[bytes, int]]:
    """What the program of a job with this code copy can read, laid out as its agent does."""
    store = root / "store"
    for sha256, source in gathered.sources.items():
        held = store / sha256[:2] / sha256[2:]
        held.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, held)
    listed = root / f"{code.digest(gathered.tree)}.json"
    listed.write_bytes(code.canonical(gathered.tree))
    laid = tempfile.mkdtemp(dir=root)
    layout = {"tree": str(listed), "objects": str(store), "source": str(root / "work")}
    lay_out(launch(Path(laid), code=layout))
    return visible(Path(laid) / "work")


def compared(first: Gathered, second: Gathered) -> bool:
    """Whether `compare` names a difference of the code, or says that it did not look at all of it."""
    jobs = [
        replace(builders.job(), id=id, code=CodeCopy(code.digest(one.tree), one.files, one.bytes, one.linked))
        for id, one in (("a-1", first), ("b-1", second))
    ]
    return jobs[0].code.digest != jobs[1].code.digest or not_compared(jobs) != []


def said_of(root: Path, changes: list[tuple[str, int]]) -> tuple[Gathered, Gathered] | None:
    """The copies before and after the changes, if a run sees another thing; then it must be said."""
    first = gather(root / "work", LIMITS)
    before = seen_by_a_run(root, first)
    for kind, which in changes:
        change(root, kind, which)
    second = gather(root / "work", LIMITS)
    if seen_by_a_run(root, second) == before:
        return None
    assert compared(first, second)
    return first, second


@settings(max_examples=examples(1000, 5000), deadline=None)
@given(TREES, CHANGES)
def test_a_run_sees_no_change_that_is_not_said(nodes: list[Any], changes: list[tuple[str, int]]) -> None:
    with place() as root:
        make(root, nodes)
        said_of(root, changes)


@settings(max_examples=examples(25, 500), deadline=None)
@given(TREES, CHANGES, st.sampled_from(("", "--assume-unchanged", "--skip-worktree")))
def test_nor_in_a_repository(nodes: list[Any], changes: list[tuple[str, int]], flag: str) -> None:
    with place() as root:
        work = make(root, nodes)
        git(work, "init", "-q")
        git(work, "add", "-A")
        git(work, "commit", "-qm", "x")
        if flag:
            git(work, "update-index", flag, "train.py")
        told = said_of(root, changes)
        if told is not None:
            first, second = told
            assert second.git_dirty or second.linked or first.linked or not changed_in_commit(work), "it is not the commit's files"


def changed_in_commit(work: Path) -> bool:
    """Whether a tracked file differs from the commit, whatever git was told to overlook."""
    listed = git(work, "ls-tree", "-r", "-z", "HEAD").split("\0")
    for record in filter(None, listed):
        about, path = record.split("\t")
        mode, _, known = about.split(" ")
        if mode == "100644" and (work / path).is_file() and git(work, "hash-object", "--no-filters", path) != known:
            return True
    return False


@settings(max_examples=examples(150, 3000), deadline=None)
@given(TREES, CHANGES)
def test_nor_in_its_data(nodes: list[Any], changes: list[tuple[str, int]]) -> None:
    with place() as root:
        work = make(root, nodes)
        told = []
        seen = []
        for _ in range(2):
            (said,) = versions({"data": {"train": str(work)}}, root)
            told.append(DataVersion(**said))
            seen.append({name: one[0] for name, one in visible(work).items()})
            for kind, which in changes if len(told) == 1 else ():
                change(root, kind, which)
        if seen[0] != seen[1]:
            assert (told[0].digest, told[0].listing) != (told[1].digest, told[1].listing) or not told[0].exact


def test_the_law_notices_what_is_not_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tree that had linked files and did not count them would pass as equal."""
    work = make(tmp_path, [("venv/lib.py", ("file", b"1"))])
    first = gather(work, LIMITS)
    (work / "venv" / "lib.py").write_bytes(b"2")
    second = gather(work, LIMITS)
    assert compared(first, second)
    assert not compared(first._replace(links=()), second._replace(links=()))
