"""The server's life with real processes: up, found again, revived after kill -9, down; and every refusal in words."""

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import deadline

from trainmaster import daemons, live_processes, termination
from trainmaster.daemons import Options, StopReport
from trainmaster.errors import ConflictError, OperationError, UsageError
from trainmaster.home import Home
from trainmaster.wire.names import ENV_FAILPOINT
from trainmaster.wire.processes import start_ticks


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    daemons.stop(made)
    deadline(lambda: processes_of(made) == [], "a spawner that was only starting to go by itself")


def processes_of(home: Home) -> list[str]:
    """Command lines that name this home."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(home.root) in argv and start_ticks(int(pid)) is not None:
            found.append(b" ".join(argv).decode())
    return found


def health(info: live_processes.ServerInfo) -> dict[str, object]:
    with urllib.request.urlopen(f"{info.url}/healthz", timeout=5) as answer:
        value: dict[str, object] = json.load(answer)
        return value


def python(home: Home, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, whose streams are pipes: it returns once nobody holds them any more."""
    script = f"from pathlib import Path\nfrom trainmaster import daemons, live_processes\nfrom trainmaster.home import Home\nhome = Home(Path({str(home.root)!r}))\n{code}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_up_answers_holds_no_stream_and_is_found_again(home: Home) -> None:
    assert live_processes.running(home) is None
    done = python(home, "print(daemons.start(home).url)")
    info = live_processes.running(home)
    assert info is not None
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{info.url}\n", "")
    assert health(info) == {"status": "ok", "version": info.version, "api": True, "control": True, "nodes": 1, "troubles": []}
    again = daemons.start(home)
    assert (again.url, again.pids, again.started) == (info.url, info.pids, ())
    for pid in info.pids.values():
        assert os.getsid(pid) != os.getsid(0)
        assert os.path.realpath(f"/proc/{pid}/cwd") == "/"
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert {os.path.dirname(os.readlink(f"/proc/{pid}/fd/{n}")) for n in (1, 2)} == {str(home.logs)}
    private = (home.root, home.token_file, home.secret_file, home.socket("api"))
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0] * 4
    assert home.token_file.read_text().strip() not in "".join(path.read_text() for path in home.logs.iterdir())


@pytest.mark.parametrize("which", live_processes.PROCESSES)
def test_one_that_is_killed_is_brought_back_by_the_other(home: Home, which: str) -> None:
    info = daemons.start(home)
    os.kill(info.pids[which], signal.SIGKILL)

    def back() -> live_processes.ServerInfo | None:
        now = live_processes.running(home)
        whole = now is not None and all(live_processes.ready(home, one) for one in live_processes.PROCESSES)
        return now if whole and now is not None and now.pids[which] != info.pids[which] else None

    revived = deadline(back, f"{which} to be back", 20.0)
    other = next(one for one in live_processes.PROCESSES if one != which)
    assert (revived.url, revived.pids[other]) == (info.url, info.pids[other])
    assert health(revived)["control"] is True


def test_both_killed_come_back_with_the_next_start(home: Home) -> None:
    info = daemons.start(home)
    for pid in info.pids.values():
        os.kill(pid, signal.SIGSTOP)  # neither sees the other go
    for pid in info.pids.values():
        os.kill(pid, signal.SIGKILL)
    deadline(lambda: all(start_ticks(pid) is None for pid in info.pids.values()), "both to be gone")
    assert live_processes.running(home) is None
    again = daemons.start(home)
    assert (again.url, again.started) == (info.url, live_processes.PROCESSES)
    assert health(again)["control"] is True


def test_down_ends_all_and_nobody_revives(home: Home) -> None:
    assert daemons.stop(home) == StopReport()
    info = daemons.start(home)
    report = daemons.stop(home)
    assert (report.stopped[:2], report.killed) == (live_processes.PROCESSES, ())
    assert processes_of(home) == []
    assert live_processes.running(home) is None
    assert not home.server_json.exists()
    assert daemons.revive(home, "control") is False
    began_s = time.monotonic()
    assert daemons.start(home).url == info.url  # the port of last time
    assert time.monotonic() - began_s < 10.0, "far beyond its budget of 1.2 s on a quiet machine"


def test_down_kills_what_does_not_go_and_finds_what_no_file_names(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "STOP_TIMEOUT_S", 0.5)
    info = daemons.start(home)
    for pid in info.pids.values():
        os.kill(pid, signal.SIGSTOP)
    home.server_json.unlink()  # only now: a watcher that saw it go would be stopped with the lock in its hands
    report = daemons.stop(home)
    assert (report.stopped[:2], report.killed) == (live_processes.PROCESSES, live_processes.PROCESSES)
    assert [start_ticks(pid) for pid in info.pids.values()] == [None, None]


def test_starts_at_the_same_time_make_one_server(home: Home) -> None:
    infos: list[live_processes.ServerInfo] = []
    threads = [threading.Thread(target=lambda: infos.append(daemons.start(home))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(info.url, *sorted(info.pids.values())) for info in infos}) == 1
    assert sorted(len(info.started) for info in infos) == [0, 0, 2]
    servers = [line for line in processes_of(home) if "trainmaster.server" in line]
    assert len(servers) == 2


def test_a_port_that_is_taken_is_named_with_who_has_it(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OperationError) as raised:
            daemons.start(home, Options(port=port))
    assert raised.value.message.startswith(f"port {port} is taken by process {os.getpid()} (")
    assert raised.value.hint == "choose another with --port"
    assert processes_of(home) == []
    assert daemons.start(home, Options(port=port)).url == f"http://127.0.0.1:{port}"


def test_options_are_kept_and_others_are_refused_while_it_runs(home: Home) -> None:
    daemons.start(home, Options(nodes=2, gpus_per_node=1))
    info = live_processes.running(home)
    assert info is not None
    assert health(info)["nodes"] == 2
    assert daemons.start(home, Options(nodes=2)).started == ()
    assert daemons.start(home).started == ()
    with pytest.raises(ConflictError, match="other settings"):
        daemons.start(home, Options(nodes=3))
    assert home.read_json(home.settings_json) == {"nodes": 2, "gpus_per_node": 1}


def test_a_failpoint_needs_leave_and_kills_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_FAILPOINT, "acknowledge.before:1")
    with pytest.raises(UsageError, match=ENV_FAILPOINT):
        daemons.start(home)
    info = daemons.start(home, Options(failpoints=True))
    token = home.token_file.read_text().strip()

    def submit() -> str | None:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
        body = json.dumps({"spec": {"command": "true", "name": "train"}, "hold": "only to see"}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{info.url}/api/v1/jobs", body, headers), timeout=5) as answer:
                return str(json.load(answer)["id"])
        except OSError:
            return None

    assert submit() is None
    assert deadline(submit, "the api to be back", 20.0) == "train-1"
    with urllib.request.urlopen(
        urllib.request.Request(f"{info.url}/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}), timeout=5
    ) as answer:
        assert [row["id"] for row in json.load(answer)["jobs"]] == ["train-1"]


def test_a_home_that_is_none_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "below"):
        with pytest.raises(UsageError, match="is not a directory"):
            daemons.start(Home(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another's home")
def test_a_home_of_another_user_is_said(tmp_path: Path) -> None:
    other = pwd.getpwnam("nobody")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, other.pw_uid, other.pw_gid)
    with pytest.raises(OperationError, match=f"{foreign} belongs to nobody, not to root"):
        daemons.start(Home(foreign))
    assert os.listdir(foreign) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_home_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", frozen], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(OperationError, match="cannot be written: Read-only file system"):
            daemons.start(Home(frozen / "home"))
        assert daemons.stop(Home(frozen / "home")) == StopReport()
    finally:
        subprocess.run(["umount", frozen], check=True)


def test_a_number_of_another_process_is_not_taken_for_ours(home: Home) -> None:
    home.root.mkdir(parents=True)
    ours = {"pids": {"api": os.getpid()}, "ticks": {"api": 1}, "boot_id": "x", "url": "http://127.0.0.1:1"}
    home.server_json.write_text(json.dumps(ours))
    assert live_processes.running(home) is None
    assert daemons.stop(home) == StopReport()


def test_processes_whose_home_is_removed_end_by_themselves(tmp_path: Path) -> None:
    home = Home(tmp_path / "removed")
    daemons.start(home)

    def removed() -> bool:
        shutil.rmtree(home.root, ignore_errors=True)  # they may write into it meanwhile
        return not home.root.exists()

    deadline(removed, "the home to be gone")
    deadline(lambda: processes_of(home) == [], "all to end", timeout_s=60.0)
