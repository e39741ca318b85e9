"""Whether the program or the machine caused a failed start: the agent's report, and the consequence for the job."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launches import launch, write

from trainmaster.agent import main
from trainmaster.agent.checkpoints import restore_files
from trainmaster.agent.launch import venvs
from trainmaster.agent.launch.start import Startup
from trainmaster.agent.processes import spawn
from trainmaster.agent.processes.spawn import LaunchError, MachineError
from trainmaster.agent.processes.wakeup import Wake
from trainmaster.control.reports import event_of
from trainmaster.engines.local import exits
from trainmaster.model.events import NodeEnded
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome

RECORD: dict[str, Any] = {
    "ranks": [], "launch_error": None, "machine_error": "could not start a rank: fork", "over_memory": False,
    "memory_limit_bytes": None, "peak_memory_bytes": 0, "port_in_use": False, "last_step": None, "first_step": None, "ran_s": 0.0,
}  # fmt: skip


def made(root: Path, **changes: Any) -> Startup:
    (root / "attempt").mkdir(parents=True, exist_ok=True)
    start = Startup(str(root / "attempt"), launch(root, environment={"PATH": os.environ["PATH"]}, **changes), Wake())
    start.make()
    for rank in start.ranks:
        os.waitpid(rank.pid, 0)
    start.prepared.release()
    return start


@pytest.mark.parametrize(
    ("call", "number"),
    [("fork", errno.EAGAIN), ("fork", errno.ENOMEM), ("pipe", errno.EMFILE), ("makedirs", errno.EIO), ("open", errno.ENOSPC)],
)
def test_what_the_machine_refuses_is_no_fault_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """R3: a refused fork, a full table of descriptors, a disk that fails: a machine error, in whatever call it comes."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    wake = Wake()
    (tmp_path / "attempt").mkdir()
    start = Startup(str(tmp_path / "attempt"), launch(tmp_path), wake)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        start.make()
    start.prepared.release()
    assert start.ranks == []
    assert start.failure is not None
    assert (start.failure.of_machine, os.strerror(number) in start.failure.text) == (True, True)


def test_a_missing_program_is_the_programs(tmp_path: Path) -> None:
    start = made(tmp_path, command=["trian.py"])
    assert start.failure is not None
    assert (start.failure.of_machine, start.failure.text[:17]) == (False, "command not found")


def test_a_store_that_is_away_is_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: the store's file system is unmounted while a job restarts."""
    point = {"id": "0001-1", "step": 1, "approximate": False, "root": str(tmp_path / "away" / "0001-1"), "digests": {"n0": "0" * 64}}
    monkeypatch.setattr(restore_files, "PAUSES_S", (0.001,))
    start = made(tmp_path, resume=[point], attempt=2)
    assert start.failure is not None
    assert (start.failure.of_machine, start.failure.text) == (
        True,
        "could not restore the last good checkpoint: checkpoint 0001-1 of step 1 could not be read: [Errno 2] No such file or "
        f"directory: '{tmp_path}/away/0001-1/n0/MANIFEST.json'; check that the path is there and its file system is mounted",
    )
    assert start.prepared.restored is not None
    assert (start.prepared.restored.doubted, start.prepared.restored.bad) == (["0001-1"], [])


@pytest.mark.parametrize(
    ("told", "machine"),
    [
        ("exec 2 No such file or directory", False), ("exec 13 Permission denied", False), ("exec 8 Exec format error", False),
        ("exec 12 Cannot allocate memory", True), ("exec 5 Input/output error", True), ("exec 26 Text file busy", True),
        ("setsid 1 Operation not permitted", True), ("cgroup 2 No such file", True), ("chdir 116 Stale file handle", True),
    ],
)  # fmt: skip
def test_exec_tells_a_missing_program_from_a_machine_that_fails(told: str, machine: bool) -> None:
    assert spawn.by_machine(told) is machine


def test_no_end_without_a_reserved_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: on a full disk nothing starts, and the reason is known."""
    begun: list[Startup] = []

    class Ended:
        def __init__(self, start: Startup) -> None:
            begun.append(start)

        def run(self) -> None:
            return

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path / "launch.json", '{"key": "digits-1.1/n0", "contained": []}')
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr("trainmaster.agent.supervise.loop.Attempt", Ended)
    monkeypatch.setattr(Wake, "install", lambda self: None)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr("trainmaster.agent.processes.libc.adopt_orphans", lambda: True)
    main._live(str(tmp_path))
    failures = [start.failure for start in begun if start.failure is not None]
    assert [(one.of_machine, "No space left" in one.text) for one in failures] == [(True, True)]


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\nERROR: No matching distribution", 1, MachineError),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", 1, MachineError),
        ("Collecting six", -9, MachineError),
        ("ERROR: No matching distribution found for sixx", 1, LaunchError),
    ],
)  # fmt: skip
def test_pip_tells_a_wrong_name_from_an_index_that_is_away(tmp_path: Path, words: str, code: int, kind: type) -> None:
    """R3: the index is away for the seconds of a restart."""
    path = str(tmp_path / "venv")
    write(tmp_path / "venv.log", words)
    with pytest.raises(LaunchError) as caught:
        venvs._fail(path, ["python", "-m", "pip"], "requirements.txt", code)
    assert type(caught.value) is kind
    with pytest.raises(LaunchError) as told:
        venvs._refuse_failed(path, 0.0)
    assert type(told.value) is kind


def told(record: dict[str, Any]) -> Outcome:
    """By a report, where `exits.outcome` reads the exit record."""
    event = event_of(AgentKey("digits-1", 1, 0), {"kind": "ended", "n": 1, **record})
    assert isinstance(event, NodeEnded)
    return event.outcome


@pytest.mark.parametrize("parse", [told, exits.outcome])
def test_the_record_says_it_and_one_of_an_older_agent_does_not(parse: Callable[[dict[str, Any]], Outcome]) -> None:
    assert parse(RECORD) == Outcome(machine_error="could not start a rank: fork")
    assert parse({name: value for name, value in RECORD.items() if name != "machine_error"}) == Outcome()
