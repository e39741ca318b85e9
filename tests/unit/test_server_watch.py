"""api and control restart each other, with any number of open connections."""

import json
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster import daemons
from trainmaster.home import Home
from trainmaster.server.process.watchdog import _sleep_while_alive, restart_delay_s
from trainmaster.wire.processes import boot_id, start_ticks


@pytest.fixture
def crowded() -> Iterator[None]:
    """A process that holds more than 1,024 descriptors, as an api of some hundred agents does."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2048:
        pytest.skip("the hard limit of descriptors is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_end_of_the_other_is_noticed_beside_a_thousand_connections(tmp_path: Path, crowded: None) -> None:
    home = Home(tmp_path)
    other = subprocess.Popen(["sleep", "60"])
    record = {"pids": {"control": other.pid}, "ticks": {"control": start_ticks(other.pid)}, "boot_id": boot_id()}
    home.server_json.write_text(json.dumps(record))
    watching = threading.Timer(0.2, other.kill)
    watching.start()
    _sleep_while_alive(home, "control")
    watching.join()
    assert other.wait(5.0) == -9


def test_a_process_that_cannot_come_up_is_heard_beside_a_thousand_connections(tmp_path: Path, crowded: None) -> None:
    reader, writer = os.pipe()
    os.write(writer, b'{"code": "disk_full", "message": "no space left", "hint": "free some"}\n')
    os.close(writer)
    child = daemons._Child("control", reader, tmp_path / "control.out")
    daemons._listen([child])
    with pytest.raises(daemons.DiskFullError, match="no space left"):
        daemons._listen([child])
    os.close(reader)


def test_one_that_dies_young_again_and_again_is_given_time() -> None:
    assert [restart_delay_s(deaths) for deaths in (0, 1, 3, 4, 5, 6, 9, 5000)] == [0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 30.0, 30.0]
