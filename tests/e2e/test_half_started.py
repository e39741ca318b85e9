"""Server processes whose start was given up half-way: they neither stay behind nor stand in anyone's way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import deadline
from trainmaster import daemons
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


@pytest.mark.parametrize("which", daemons.PROCESSES)
def test_one_still_on_its_way_at_the_stop_ends_by_itself(home: Home, which: str) -> None:
    home.root.mkdir()
    leave_behind(home, which)
    daemons.stop(home)
    deadline(lambda: servers(home) == [], "nothing to be left", timeout_s=30.0)


@pytest.mark.parametrize("which", daemons.PROCESSES)
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
    after = daemons.running(home)
    assert after is not None
    assert set(after.pids.values()).isdisjoint(before.values())
    assert servers(home) == ["api", "control"]
