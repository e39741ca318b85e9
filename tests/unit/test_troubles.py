"""Troubles of the server are reported once, stored on one page, and read by the other process."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster import troubles
from trainmaster.cli.inspect import server_troubles
from trainmaster.home import Home
from trainmaster.troubles import Register, Trouble


@pytest.fixture(autouse=True)
def _own() -> Iterator[None]:
    yield
    troubles.own.forget()


def test_said_twice_it_is_one_trouble_with_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    register = Register()
    monkeypatch.setattr("time.time", lambda: 100.0)
    assert register.say("disk", "the disk is full")
    monkeypatch.setattr("time.time", lambda: 200.0)
    assert not register.say("disk", "the disk is\nfuller")
    assert register.say("clock", "it jumped")
    assert register.said() == [Trouble("", "disk", "the disk is fuller", 100.0), Trouble("", "clock", "it jumped", 200.0)]
    assert register.clear("disk")
    assert not register.clear("disk")
    assert [one.topic for one in register.said()] == ["clock"]


def test_the_other_process_reads_it_until_this_one_is_gone(tmp_path: Path) -> None:
    home, register = Home(tmp_path), Register()
    register.say("early", "before the lock was held")
    register.keep(home, "control")
    register.say("disk", "the disk of ünïcode is full")
    assert [(one.process, one.topic) for one in troubles.everywhere(home)] == [("control", "early"), ("control", "disk")]
    register.clear("early")
    register.clear("disk")
    assert troubles.everywhere(home) == []
    program = (
        "import sys; from pathlib import Path; from trainmaster import troubles; from trainmaster.home import Home\n"
        "troubles.keep(Home(Path(sys.argv[1])), 'api'); troubles.say('x', 'y'); print(len(troubles.everywhere(Home(Path(sys.argv[1])))))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert json.loads((tmp_path / "troubles.api.json").read_bytes())["troubles"] != []
    assert troubles.read(home, "api") == [], "a process that is gone has no trouble any more"


def test_a_disk_that_takes_nothing_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R18: the page is there from the start, so that it can be overwritten on a full disk; where not, the memory has it."""
    home = Home(tmp_path)
    troubles.keep(home, "api")
    assert (tmp_path / "troubles.api.json").stat().st_size == 4096

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert troubles.say("disk", "the disk is full")
    assert [one.topic for one in troubles.everywhere(home)] == ["disk"]


def test_it_is_bounded(tmp_path: Path) -> None:
    home, register = Home(tmp_path), Register()
    register.keep(home, "api")
    for number in range(100):
        register.say(f"topic-{number}", "\u00e9" * 10_000)
    assert len(register.said()) == troubles.TOPICS_MAX
    assert (tmp_path / "troubles.api.json").stat().st_size == 4096
    found = troubles.read(home, "api")
    assert [one.topic for one in found] == [f"topic-{n}" for n in range(len(found))]
    assert len(found) >= 3
    (tmp_path / "troubles.api.json").write_bytes(b"{half")
    assert troubles.read(home, "api") == []


def test_one_line_says_it() -> None:
    found = [{"text": "the disk of /h is full", "since_s": 1000.0}, {"text": "the clock jumped", "since_s": 2000.0}]
    said = server_troubles.line(found[:1], 1100.0)
    assert said.startswith("server: the disk of /h is full (since ")
    assert len(said.split("since ")[1]) == len("12:03)")
    assert server_troubles.line(found, 1e9).endswith("); 1 more: tm doctor")
    assert "1970-01-01" in server_troubles.line(found, 1e9)
