"""What the local engine cannot read proves nothing: the phase is unknown, people are told, and it is read again."""

import errno
import json
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from control_server import KEY, Server

from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.observing import Observer
from trainmaster.engines.local.watch import Watcher
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.commands import CancelJob
from trainmaster.model.job import State
from trainmaster.ports.engine import Observation, Phase
from trainmaster.wire import names, processes

RECORD = {
    "ranks": [], "launch_error": None, "over_memory": False, "memory_limit_bytes": None, "peak_memory_bytes": 0, "port_in_use": False,
    "last_step": None, "first_step": None, "ran_s": 0.0, "staged": [], "kept": [], "restored": None, "restored_step": None, "bad": [],
}  # fmt: skip


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Every open file fails with EMFILE meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    watcher = Watcher(lambda: None)
    home = Home(tmp_path)
    yield Observer(Attempts(home), Cgroups(tmp_path, tmp_path, tmp_path / "none"), watcher)
    watcher.close()


def dead_agent(root: Path) -> Path:
    """The directory of an agent that was here and is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    directory = Attempts(Home(root)).directory(KEY)
    directory.mkdir(parents=True)
    identity = {"pid": gone.pid, "start_ticks": 1, "boot_id": processes.boot_id()}
    (directory / names.AGENT).write_text(json.dumps(identity))
    return directory


def seen(observer: Observer) -> tuple[Phase, bool]:
    found = observer.observe([KEY])[KEY]
    return found.phase, found.unreadable


def test_a_server_without_descriptors_takes_no_job_for_lost(tmp_path: Path, observer: Observer) -> None:
    """R3: the exit record could not be opened, and a job that had succeeded was run again."""
    directory = dead_agent(tmp_path)
    (directory / names.EXIT).write_text(json.dumps(RECORD))
    with no_descriptors():
        assert seen(observer) == (Phase.UNKNOWN, True)
    assert seen(observer) == (Phase.ENDED, False)


def test_a_failure_keeps_its_time_while_no_server_reads_the_record(tmp_path: Path, observer: Observer) -> None:
    """Of a gang that ended while the server was down, the rank was blamed whose node had stored for longer."""
    rank = {
        "rank": 0, "exit_code": 1, "signal": None, "stopped_by_us": False, "ended_after_s": 5.0, "last_lines": [], "error": None,
        "peak_memory_bytes": 0, "cpu_s": 0.0,
    }  # fmt: skip
    path = dead_agent(tmp_path) / names.EXIT
    path.write_text(json.dumps({**RECORD, "ranks": [rank], "failed_ago_s": 1.0}))
    os.utime(path, (time.time() - 1800.0,) * 2)
    found = observer.observe([KEY])[KEY].outcome
    assert found is not None
    assert 1801.0 <= found.failed_ago_s < 1831.0


def test_what_still_runs_is_not_gone_because_the_process_table_cannot_be_read(tmp_path: Path, observer: Observer) -> None:
    directory = dead_agent(tmp_path)
    left = subprocess.Popen(["sleep", "60"])
    try:
        (directory / names.TREE).write_text(f"{left.pid} {processes.start_ticks(left.pid)}\n")
        assert seen(observer) == (Phase.LOST, False)
        with no_descriptors():
            assert seen(observer) == (Phase.UNKNOWN, True)
    finally:
        left.kill()
        left.wait()
    assert seen(observer) == (Phase.GONE, False)


@pytest.mark.parametrize("name", [names.AGENT, names.EXIT, names.TREE, names.SPOOL])
def test_a_file_that_the_disk_does_not_give_back_is_no_evidence(tmp_path: Path, observer: Observer, name: str) -> None:
    directory = dead_agent(tmp_path)
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to("/proc/self/mem")  # whose first page answers EIO
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is what counts
        (directory / name).read_bytes()
    assert caught.value.errno == errno.EIO
    assert seen(observer) == (Phase.UNKNOWN, True)


def test_what_cannot_be_read_is_told_while_it_is_so(tmp_path: Path) -> None:
    server = Server(Home(tmp_path))
    server.running()
    server.engine.says[KEY] = Observation(Phase.UNKNOWN, evidence="what it left cannot be read: EIO", unreadable=True)
    for _ in range(3):
        server.tick()
    assert [one.text for one in server.job().troubles] == [
        "the state of its agent on sim0 cannot be read: what it left cannot be read: EIO; it is checked again"
    ]
    assert server.job().state is State.RUNNING
    del server.engine.says[KEY]
    server.tick()
    assert server.job().troubles == ()


def test_the_stop_of_what_cannot_be_read_is_ordered_at_each_beat(tmp_path: Path) -> None:
    """The first order may have failed on records that a program damaged: the next one removes them."""
    server = Server(Home(tmp_path))
    server.running()
    server.engine.says[KEY] = Observation(Phase.UNKNOWN, evidence="it is no regular file", unreadable=True)
    server.engine.broken = OperationError("no stop", "try again")
    server.ask(CancelJob("train-1", "ann"))
    server.tick()
    assert server.job().state is State.STOPPING
    assert KEY not in server.engine._stopped
    server.engine.broken = None
    server.tick()
    assert KEY in server.engine._stopped
