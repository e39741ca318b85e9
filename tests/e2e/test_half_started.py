"""Server processes whose start was given up half-way: they neither stay behind nor stand in anyone's way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import deadline

from trainmaster import compose, configuration, daemons, live_processes
from trainmaster.engines.local.starting import start_spawner
from trainmaster.errors import OperationError, UsageError
from trainmaster.home import Home
from trainmaster.server.process.sockets import bind_tcp


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


@pytest.mark.parametrize("which", live_processes.PROCESSES)
def test_one_still_on_its_way_at_the_stop_ends_by_itself(home: Home, which: str) -> None:
    home.root.mkdir()
    leave_behind(home, which)
    daemons.stop(home)
    deadline(lambda: servers(home) == [], "nothing to be left", timeout_s=30.0)


@pytest.mark.parametrize("which", live_processes.PROCESSES)
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
    after = live_processes.running(home)
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
        assert set(daemons.start(home).started) == set(live_processes.PROCESSES)
        assert holding.wait(10.0) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "which", "code"),
    [("settings.json", "control", 1), ("home.json", "control", 1), ("secret", "control", 1), ("server.toml", "control", 2), ("token", "api", 1)],
)
def test_a_file_of_the_home_that_cannot_be_read_is_named(home: Home, name: str, which: str, code: int) -> None:
    """It is no absent file: the server says which one it is, and does not begin without it."""
    home.root.mkdir()
    (home.root / name).symlink_to("away")
    (home.root / "away").symlink_to("away")
    command = [sys.executable, "-m", "trainmaster.server", which, str(home.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert f"{home.root / name}" in done.stderr


@pytest.mark.parametrize("found", [None, 7, {"pids": None, "url": 3}, {"url": "http://x", "pids": [], "ticks": {}, "ready": {}}])
def test_a_record_of_another_shape_says_nothing(tmp_path: Path, found: object) -> None:
    home = Home(tmp_path)
    home.server_json.write_text(json.dumps(found))
    assert (live_processes.running(home), live_processes.alive(home, "api"), live_processes.ready(home, "api")) == (None, False, False)


@pytest.mark.parametrize("found", [b"", b"\xff\x00", b"99999", b"-1", b"9" * 5000, b"many"])
def test_a_remembered_port_that_is_none_is_passed_over(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "port").write_bytes(found)
    with bind_tcp(Home(tmp_path), None) as listener:
        assert listener.getsockname()[1] == int((tmp_path / "port").read_text())


def test_a_secret_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """From an empty one everybody could derive every agent's credential."""
    home = Home(tmp_path)
    home.secret_file.write_bytes(b"")
    with pytest.raises(OperationError, match="has 0 bytes, not 32"):
        compose.server_secret(home)


def test_a_configuration_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "server.toml").write_bytes("# f\u00fcr alle\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"server\.toml is not UTF-8: see byte 3"):
        configuration.load(home)


def test_a_start_is_waited_for_as_long_as_its_processes_use_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with load 15, a start that took over 30 s was ended, again and again."""
    now_s, used_s, pids = [0.0], {7: 0.0}, list[int]()
    monkeypatch.setattr(daemons.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(daemons, "cpu_s", lambda pid: pids.append(pid) or used_s[pid])
    child = daemons._Child("api", -1, Path("api.out"), identity=(7, 1))
    patience, asked = daemons._Patience(), list[bool]()
    for use_s in (0.0, 0.2, 0.4, 0.4, 0.4):
        now_s[0], used_s[7] = now_s[0] + 25.0, use_s
        asked.append(patience.ends([child]))
    assert (asked, set(pids)) == ([False, False, False, False, True], {7})
    patience, now_s[0] = daemons._Patience(), 1000.0
    assert patience.ends([child])  # whatever it used


def test_a_server_that_is_not_on_record_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removed `server.json`, or put back an older one: its processes hold their locks."""
    pids = daemons.start(home).pids
    os.kill(pids["control"], signal.SIGSTOP)  # neither enters itself again, nor is brought back
    home.server_json.unlink()
    monkeypatch.setattr(daemons, "START_TIMEOUT_S", 5.0)
    with pytest.raises(OperationError, match=f"api runs as process {pids['api']} and is not in .*server.json"):
        daemons.start(home)
