"""The holder of a lock is found even in a busy kernel list; a home belongs to one user; a replaced home is noticed."""

import contextlib
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trainmaster import daemons, locks
from trainmaster.home import Home


class Listing:
    """What the kernel hands out, look by look; the last from then on."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def read_text(self) -> str:
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


OTHERS = "".join(f"{n}: POSIX  ADVISORY  READ {n} fe:00:{n} 128 128\n" for n in range(1, 90))
OURS = "90: FLOCK  ADVISORY  WRITE 4711 fe:00:815 0 EOF\n"


@pytest.mark.parametrize(
    ("looks", "pid"), [((OTHERS + OURS,), 4711), ((OTHERS, OTHERS, OTHERS + OURS), 4711), ((OTHERS,), None)]
)
def test_an_entry_that_moved_past_the_reader_is_found(
    looks: tuple[str, ...], pid: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry before ours that goes between two parts of the list moves ours past the reader: it is in neither part."""
    monkeypatch.setattr(locks, "_LOCKS", Listing(*looks))
    assert locks._holder(815) == pid


def test_an_older_home_is_made_its_owners_alone(tmp_path: Path) -> None:
    """S9: a home of mode 0755 and its lock of mode 0644 are tightened at the start."""
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.root.chmod(0o755)
    home.lock("up").touch()
    home.lock("up").chmod(0o644)
    daemons._prepare(home)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home.root, home.lock("up"))] == [0o700, 0o600]
    with locks.hold(home, "other"):
        assert stat.S_IMODE(home.lock("other").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_users_lock_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: a process that opened the lock of an older home while it was readable holds it without effect."""
    monkeypatch.setattr(locks, "_STOPPED_LOOK_S", 0.05)
    home = Home(tmp_path)
    home.lock("up").touch()
    with open(home.lock("up")) as file:
        taking = f"os.setuid(65534); fcntl.flock({file.fileno()}, fcntl.LOCK_EX); print('held', flush=True); input()"
        command = [sys.executable, "-c", f"import fcntl, os; {taking}"]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(file.fileno(),))
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        began_s = time.monotonic()
        with locks.hold(home, "up", timeout_s=0.2):
            assert time.monotonic() - began_s < 10.0
            with pytest.raises(Exception, match="does not finish"), locks.hold(home, "up", timeout_s=0.2):
                raise AssertionError("held twice")
    finally:
        other.communicate(b"\n")


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_home_that_is_removed_under_its_lock_is_noticed(tmp_path: Path, begun_anew: bool) -> None:
    """R10: `rm -rf $TRAINMASTER_HOME; tm up` left the old pair of processes at work in the new home."""
    path = tmp_path / "home" / "api.lock"
    path.parent.mkdir()
    ended = threading.Event()
    with path.open("a"):
        held = locks.inode(path)
        assert not locks.is_another(path, held)
        locks.guard(lambda: locks.is_another(path, held), ended.set)
        path.unlink()
        if begun_anew:
            path.touch()
        else:
            path.parent.rmdir()
        assert locks.is_another(path, held)
        assert ended.wait(10.0)


def test_a_home_that_is_moved_is_noticed_and_one_that_cannot_be_looked_at_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "home" / "api.lock"
    path.parent.mkdir()
    with path.open("a"):
        held = locks.inode(path)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", lambda *_, **__: os.stat("/proc/self/mem/nothing"))
            assert not locks.is_another(path, held)
        path.parent.rename(tmp_path / "moved")
        assert locks.is_another(path, held)


_API = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[2], os.O_RDONLY), fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"


@pytest.mark.parametrize("kind", ["no more files", "read-only"])
def test_a_server_is_stopped_though_nothing_can_be_written(tmp_path: Path, kind: str) -> None:
    """`tm down` failed where no file could be made: it began with making one."""
    home = Home(tmp_path / "home")
    home.root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=20", "none", home.root], capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        home.logs.mkdir()
        for path in (home.lock("up"), home.lock("api"), home.server_json):
            path.touch()
        words = [sys.executable, "-c", _API, "trainmaster.server", str(home.lock("api")), str(home.root)]
        api = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert api.stdout is not None
        assert api.stdout.readline() == b"held\n"
        if kind == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", home.root], check=True)
        else:
            with contextlib.suppress(OSError):
                for n in range(100):
                    (home.root / f"ballast{n}").touch()
            with pytest.raises(OSError, match="No space"):
                (home.root / "more").touch()
        threading.Thread(target=api.wait, daemon=True).start()  # it is our child here: nothing else reaps it
        assert daemons.stop(home) == daemons.StopReport(("api",))
        assert api.wait(5.0) < 0
    finally:
        subprocess.run(["umount", "-l", home.root], check=True)
