"""Server processes whose start was given up half-way: they neither stay behind nor stand in anyone's way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import deadline

from trainmaster import daemons, presence
from trainmaster.engines.local.starting import start_spawner
from trainmaster.errors import OperationError
from trainmaster.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    daemons.stop(home)


def leave_behind(home: Home, which: str) -> None:
    """A process on its way up whose starter was killed: nobody waits for it, its pipe has no reader."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "trainmaster.server", which, str(home.root), "--detach", str(write)]
    subprocess.run(command, pass_fds=(write,), start_new_session=True, stderr=subprocess.DEVNULL, check=True)
    os.close(write)
    os.close(read)


def servers(home: Home) -> list[str]:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return sorted(line[line.index("trainmaster.server") + 1] for line in lines if str(home.root) in line and "trainmaster.server" in line)


@pytest.mark.parametrize("which", presence.PROCESSES)
def test_one_still_on_its_way_at_the_stop_ends_by_itself(home: Home, which: str) -> None:
    home.root.mkdir()
    leave_behind(home, which)
    daemons.stop(home)
    deadline(lambda: servers(home) == [], "nothing to be left", timeout_s=30.0)


@pytest.mark.parametrize("which", presence.PROCESSES)
def test_a_start_gets_along_with_one_on_its_way(home: Home, which: str) -> None:
    home.root.mkdir()
    leave_behind(home, which)
    daemons.start(home)
    deadline(lambda: servers(home) == ["api", "control"], "one of each", timeout_s=30.0)


def test_one_that_dies_while_the_other_is_started_is_started_too(home: Home) -> None:
    before = daemons.start(home).pids
    os.kill(before["control"], signal.SIGSTOP)  # so that it does not revive the api
    os.kill(before["api"], signal.SIGKILL)
    environment = {**os.environ, "TRAINMASTER_HOME": str(home.root)}
    deadline(lambda: servers(home) == ["control"], "the api to be gone")
    starting = subprocess.Popen([sys.executable, "-m", "trainmaster", "up"], env=environment, stdout=subprocess.DEVNULL)
    deadline(lambda: servers(home) == ["api", "control"], "the api to be on its way", every_s=0.005)
    os.kill(before["control"], signal.SIGKILL)
    assert starting.wait(daemons.START_TIMEOUT_S - 5.0) == 0
    after = presence.running(home)
    assert after is not None
    assert set(after.pids.values()).isdisjoint(before.values())
    assert servers(home) == ["api", "control"]


def test_a_start_that_is_given_up_ends_those_it_has_not_heard_of_yet(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(children: object) -> None:
        raise OperationError("given up")

    monkeypatch.setattr(daemons, "_listen", give_up)
    with pytest.raises(OperationError, match="given up"):
        daemons.start(home)
    assert servers(home) == []


def test_a_spawner_that_has_only_just_begun_goes_with_the_stop(home: Home) -> None:
    home.root.mkdir()
    start_spawner(home)  # control was killed right after it
    daemons.stop(home)
    deadline(lambda: not any(str(home.root) in (p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])), "none left", timeout_s=30.0)


def test_a_stopped_process_of_the_server_does_not_keep_others_from_the_lock(home: Home) -> None:
    home.root.mkdir()
    code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(home.lock("up")), "trainmaster.server", str(home.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holding:
        assert holding.stdout is not None
        holding.stdout.readline()
        os.kill(holding.pid, signal.SIGSTOP)
        assert set(daemons.start(home).started) == set(presence.PROCESSES)
        assert holding.wait(10.0) == -signal.SIGKILL
