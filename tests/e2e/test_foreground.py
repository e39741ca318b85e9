"""`tm up --foreground`: says when it is ready as systemd asks it to, brings back what dies, ends by TERM, and ends no job."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, kill
from waiting import deadline

from trainmaster import daemons, live_processes
from trainmaster.wire.processes import start_ticks


@pytest.fixture
def tm(tmp_path: Path) -> Iterator[Tm]:
    tm = Tm(tmp_path)
    yield tm
    tm("down", "--cancel", timeout_s=100)
    daemons.stop(tm.home)


def test_it_stays_with_the_server_until_term_and_jobs_go_on(tm: Tm, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(60)
        argv = [sys.executable, "-m", "trainmaster", "up", "--foreground"]
        environment = {**tm.environment, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with open(tmp_path / "words", "wb") as words:
            service = subprocess.Popen(argv, cwd=tm.work, env=environment, stdout=words, stderr=words, start_new_session=True)
        try:
            assert notified.recv(64) == b"READY=1"
            job = tm.submit("--name", "goes-on", "--", "sleep 600")
            tm.state(job, "running", timeout_s=60)
            pids = live_processes.running(tm.home).pids  # type: ignore[union-attr]
            for pid in pids.values():
                kill(pid)
            deadline(lambda: all(live_processes.ready(tm.home, which) for which in live_processes.PROCESSES), "both to be back", 60)
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0, (tmp_path / "words").read_text()
            assert notified.recv(64) == b"STOPPING=1"
        finally:
            if service.poll() is None:
                service.kill()
                service.wait()
        assert live_processes.running(tm.home) is None
        assert "running jobs continue" in (tmp_path / "words").read_text()
        tm.ok("up")
        assert tm.show(job)["state"] == "running"
        assert len(tm.show(job)["attempts"]) == 1
    assert [pid for pid in pids.values() if start_ticks(pid) is not None] == []


def test_it_ends_when_the_server_is_stopped(tm: Tm) -> None:
    argv = [sys.executable, "-m", "trainmaster", "up", "--foreground", "--json"]
    service = subprocess.Popen(argv, cwd=tm.work, env=tm.environment, stdout=subprocess.PIPE)
    try:
        assert service.stdout is not None
        assert b'"url"' in service.stdout.readline()
        tm.ok("down")
        assert service.wait(60) == 0
    finally:
        if service.poll() is None:
            os.kill(service.pid, signal.SIGKILL)
            service.wait()
