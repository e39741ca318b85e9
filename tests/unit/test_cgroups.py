"""Cgroups of attempts: on directory trees like the kernel's, and on real cgroups if this machine permits it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import deadline

from trainmaster.engines.local.cgroups import AttemptCgroups, Cgroups
from trainmaster.model.ids import AgentKey
from trainmaster.wire import cgroups as kernel

KEY = AgentKey("train-1", 2, 0)
V2 = ("cgroup.kill", "cgroup.procs", "cgroup.controllers", "cgroup.subtree_control")
WITHOUT = (
    "No cgroup is available for attempts: a process that leaves its session and clears its environment may outlive an agent that is "
    "killed ({}).",
    "Memory limits are watched by the agent, not enforced by the kernel: {}.",
)
STORM = """
import os, time
while True:
    time.sleep(0.002)
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def filled(*names: str) -> "type[Path] | object":
    """Makes a cgroup as the kernel does, with these files in it."""

    def new(path: Path) -> None:
        path.mkdir(exist_ok=True)
        for name in names:
            (path / name).touch()

    return new


def tree(root: Path, own: str, controllers: str = "cpu memory pids", at: str = "") -> Path:
    """A file tree like cgroup v2's; returns the file that says which cgroup we are in."""
    mount = root / at
    directory = mount / own.lstrip("/")
    directory.mkdir(parents=True)
    for place in {mount, directory}:
        (place / "cgroup.controllers").write_text(controllers + "\n")
        (place / "cgroup.subtree_control").write_text("")
    words = root.parent / "self"
    words.write_text(f"3:cpu:/x\n0::{own}\n")
    return words


def made(tmp_path: Path, own: Path, *files: str) -> Cgroups:
    return Cgroups(tmp_path, tmp_path / "cgroup", own, filled(*files))  # type: ignore[arg-type]


def test_every_attempt_gets_a_cgroup_of_version_2_and_one_with_a_limit_gets_it_there(tmp_path: Path) -> None:
    """R21: version 2, on a tree of files."""
    cgroups = made(tmp_path, tree(tmp_path / "cgroup", "/user.slice/tm.service"), *V2)
    base = tmp_path / "cgroup/user.slice/tm.service/trainmaster"
    without = cgroups.make(KEY, None)
    (path,) = base.glob("*.train-1.2.n0")
    assert without == AttemptCgroups(None, (str(path),))
    assert cgroups.make(KEY, 1000) == AttemptCgroups(str(path), (str(path),))
    assert {name: (path / name).read_text() for name in ("memory.max", "memory.oom.group", "memory.swap.max")} == {
        "memory.max": "1000", "memory.oom.group": "1", "memory.swap.max": "0",
    }  # fmt: skip
    assert (base / "cgroup.subtree_control").read_text() == "+memory"
    (path / "cgroup.procs").write_text("12\n34\n")
    (path / "below").mkdir()
    (path / "below" / "cgroup.procs").write_text("56\n")
    assert cgroups.members(KEY) == {12, 34, 56}
    cgroups.kill(KEY)
    assert (path / "cgroup.kill").read_text() == "1"
    assert cgroups.words() == (
        "Everything an attempt starts is held in a cgroup of its own and can be ended at once.",
        "Memory limits are enforced by the kernel (cgroup v2).",
    )


def test_version_2_beside_version_1_ends_and_version_1_counts(tmp_path: Path) -> None:
    own = tree(tmp_path / "cgroup", "/", controllers="", at="unified")
    own.write_text("4:memory:/box\n6:freezer:/\n0::/\n")
    (tmp_path / "cgroup/memory/box").mkdir(parents=True)
    found = made(tmp_path, own, *V2, "memory.oom_control").make(KEY, 1000)
    assert (found.limited, [Path(one).parent for one in found.contained]) == (
        None, [tmp_path / "cgroup/unified/trainmaster", tmp_path / "cgroup/memory/box/trainmaster"],
    )  # fmt: skip


def test_a_freezer_of_version_1_is_taken_where_there_is_no_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup/freezer").mkdir(parents=True)
    own = tmp_path / "self"
    own.write_text("6:freezer:/docker/abc\n")  # a container sees its own as the root
    cgroups = made(tmp_path, own, "freezer.state", "cgroup.procs")
    (path,) = map(Path, cgroups.make(KEY, None).contained)
    assert path.parent == tmp_path / "cgroup/freezer/trainmaster"
    (path / "freezer.state").write_text("FROZEN")  # left by one that was killed in the midst of it
    cgroups.kill(KEY)
    assert (path / "freezer.state").read_text() == "THAWED"
    assert cgroups.contains


def test_an_empty_cgroup_is_removed_and_one_that_nobody_knows_any_more_too(tmp_path: Path) -> None:
    cgroups = made(tmp_path, tree(tmp_path / "cgroup", "/"), "cgroup.kill")
    path = Path(cgroups.make(KEY, None).contained[0])
    others = [path.with_name("ffffffff.other-1.1.n0"), path.with_name("ffffffff.other-2.1.n0")]
    for other in others:
        other.mkdir()
    os.utime(others[0], (1.0, 1.0))
    (path / "cgroup.kill").unlink()  # the kernel's own files do not count there
    cgroups.remove(KEY)
    cgroups.remove(KEY)
    cgroups.tidy()
    assert [one.exists() for one in (path, *others)] == [False, False, True]


def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    without = made(tmp_path, tree(tmp_path / "cgroup", "/a", controllers="cpu"))
    assert (without.make(KEY, 1000), without.members(KEY), without.limits, without.contains) == (AttemptCgroups(), frozenset(), False, False)
    assert without.words() == (
        WITHOUT[0].format("neither a cgroup v2 nor a v1 freezer may be written by this server"),
        WITHOUT[1].format("the server's cgroup is not delegated to it"),
    )
    nowhere = Cgroups(tmp_path, tmp_path, tmp_path / "none")
    assert nowhere.words() == (
        WITHOUT[0].format("this process's cgroup is not known"),
        WITHOUT[1].format("this machine has no cgroup v2 with controllers"),
    )


def test_two_homes_have_cgroups_of_their_own_under_one_key(tmp_path: Path) -> None:
    own = tree(tmp_path / "cgroup", "/")
    paths = set()
    for name in ("one", "two", "one"):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        paths.add(Cgroups(home, tmp_path / "cgroup", own, filled(*V2)).make(KEY, None))  # type: ignore[arg-type]
    assert len(paths) == 2


@pytest.mark.parametrize(("file", "text", "expected"), [
    ("memory.events", "oom 1\noom_kill 0\n", False), ("memory.events", "oom 1\noom_kill 2\n", True),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True), ("memory.events", "oom_kill x\n", False),
])  # fmt: skip
def test_the_kernel_s_count_of_kills_for_memory(tmp_path: Path, file: str, text: str, expected: bool) -> None:
    (tmp_path / file).write_text(text)
    assert kernel.killed_for_memory(str(tmp_path)) is expected


@pytest.fixture(params=["freezer", "unified", ""])
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A real cgroup of each kind that can be ended at once."""
    path = Path("/sys/fs/cgroup", request.param, f"trainmaster-test-{os.getpid()}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no such cgroup here: {error}")
    try:
        if not kernel.can_kill(str(path)):
            pytest.skip("no cgroup here that can be ended at once")
        yield path
    finally:
        kernel.kill(str(path))
        deadline(lambda: not kernel.members(str(path)), "it to be empty")
        path.rmdir()


def test_processes_that_fork_all_the_time_are_ended_at_once(group: Path) -> None:
    """R21: nothing of them outlives the call, whatever their environment and session; nothing else is touched."""
    beside = subprocess.Popen(["sleep", "60"])
    enter = f"echo $$ > {group}/cgroup.procs && exec env -i {sys.executable} -S -E -c '{STORM}'"
    started = [subprocess.Popen(["sh", "-c", enter], start_new_session=True) for _ in range(3)]
    try:
        for one in started:
            one.wait(20)  # it lives on in its children
        assert kernel.members(str(group))
        kernel.kill(str(group))
        deadline(lambda: not kernel.members(str(group)), "nothing to be left", every_s=0.001)
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.wait()
