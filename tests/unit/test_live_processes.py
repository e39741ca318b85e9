"""Whose server `server.json` tells of."""

import shutil
from pathlib import Path

import pytest

from trainmaster import daemons, live_processes
from trainmaster.errors import ConflictError
from trainmaster.home import Home
from trainmaster.wire.processes import own_identity


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of a server that runs: this process."""
    made = Home(tmp_path / "home")
    made.root.mkdir()
    for which in live_processes.PROCESSES:
        live_processes.enter(made, which, own_identity(), {"url": "http://127.0.0.1:1", "version": "1"})
    return made


def test_a_copy_of_a_home_has_no_server_and_its_originals_is_left_alone(home: Home, tmp_path: Path) -> None:
    """`tm up` and `tm down` in a copy spoke of, and stopped, the server of the original."""
    copy = Home(tmp_path / "copy")
    shutil.copytree(home.root, copy.root)
    assert (live_processes.running(home) is not None, live_processes.running(copy)) == (True, None)
    assert (live_processes.copied_from(home), live_processes.copied_from(copy)) == (None, str(home.root))
    for attempt in (daemons.start, daemons.stop):
        with pytest.raises(ConflictError, match=f"is a copy of {home.root}, whose server runs"):
            attempt(copy)
    assert live_processes.running(home) is not None


def test_a_home_that_is_moved_keeps_its_server(home: Home, tmp_path: Path) -> None:
    moved = Home(home.root.rename(tmp_path / "moved"))
    assert (live_processes.running(moved) is not None, live_processes.copied_from(moved)) == (True, None)


def test_a_copy_whose_originals_server_is_gone_is_a_home_like_any(home: Home, tmp_path: Path) -> None:
    copy = Home(tmp_path / "copy")
    for which in live_processes.PROCESSES:
        live_processes.enter(home, which, {**own_identity(), "start_ticks": 1}, {})
    shutil.copytree(home.root, copy.root)
    assert (live_processes.running(copy), live_processes.copied_from(copy)) == (None, None)
