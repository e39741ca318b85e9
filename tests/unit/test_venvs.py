"""Virtual environments of requirements: made once, never used half-made, never removed in use. The interpreter is a small
shell program that makes an environment in no time and writes down each time that it did."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from launches import launch, write
from waiting import deadline

from trainmaster.agent.launch import venvs
from trainmaster.agent.processes.spawn import LaunchError
from trainmaster.wire.launch import Launch

PYTHON = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = -I ]; then echo '["%s", "3.11", "linux"]'; exit 0; fi
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "$TRAINMASTER_KEY" >> "$LEDGER"; exit 0; fi
touch "$LEDGER.pip"
while [ -e "$LEDGER.wait" ]; do sleep 0.02; done
if [ -e "$LEDGER.fail" ]; then echo "ERROR: no such package"; exit 1; fi
head -c 100000 /dev/zero > "$here/payload"
"""


class Stopped(Exception):
    """Told to give up."""


@pytest.fixture
def orders(tmp_path: Path) -> Launch:
    python = write(tmp_path / "bin" / "python3", PYTHON)
    python.chmod(0o755)
    write(tmp_path / "work" / "requirements.txt", "six==1.16.0\n")
    return orders_of(tmp_path, "digits-1")


def orders_of(tmp_path: Path, job: str, **changes: Any) -> Launch:
    wanted = {"file": "requirements.txt", "python": None, "root": str(tmp_path / "venvs"), "max_bytes": 1 << 40}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "LEDGER": str(tmp_path / "made"), **changes.pop("environment", {})}
    return launch(tmp_path, key=f"{job}.1/n0", job=job, environment=environment, requirements={**wanted, **changes})


def provide(orders: Launch, check: Any = lambda: None, began: Any = lambda words: None) -> venvs.Venv:
    found = venvs.provide(orders, orders["work"], check, began)
    assert found is not None
    return found


def made(tmp_path: Path) -> list[str]:
    path = tmp_path / "made"
    return path.read_text().split() if path.exists() else []


def test_it_is_made_once_and_put_first(tmp_path: Path, orders: Launch) -> None:
    words: list[str] = []
    first = provide(orders, began=words.append)
    again = provide(orders, began=words.append)
    assert (again.path, made(tmp_path), words) == (first.path, ["digits-1.1/n0"], ["building the environment from requirements.txt"])
    environment = first.environment({"PATH": "/bin", "PYTHONHOME": "/x"})
    assert environment == {"PATH": f"{first.path}/bin:/bin", "VIRTUAL_ENV": first.path}
    assert json.loads(Path(f"{first.path}.json").read_text())["bytes"] >= 100000


def test_what_pip_would_read_makes_another(tmp_path: Path, orders: Launch) -> None:
    work = tmp_path / "work"
    paths = [provide(orders).path]
    write(work / "requirements.txt", "six==1.16.0\n-r more.txt\n./a.whl  # ours\n")
    write(work / "more.txt", "-c none.txt\n")
    write(work / "none.txt", "")
    write(work / "a.whl", "1")
    paths.append(provide(orders).path)
    write(work / "none.txt", "six<2\n")
    paths.append(provide(orders).path)
    write(work / "a.whl", "2")
    paths.append(provide(orders).path)
    paths.append(provide(orders_of(tmp_path, "digits-1", environment={"PIP_INDEX_URL": "http://localhost"})).path)
    assert len(set(paths)) == len(paths) == len(made(tmp_path))
    assert provide(orders_of(tmp_path, "digits-1", environment={"OMP_NUM_THREADS": "1"})).path == paths[3]


@pytest.mark.parametrize(
    ("text", "said"),
    [("six\n-e .\n", "requirements.txt:2: `-e .` would install"), (".\n", "requirements.txt:1: `.` is a directory"),
     ("-r none.txt\n", "none.txt cannot be read: No such file"), ("a @ file:///none.whl\n", "none.whl cannot be read")],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(tmp_path: Path, orders: Launch, text: str, said: str) -> None:
    write(tmp_path / "work" / "requirements.txt", text)
    with pytest.raises(LaunchError, match=said.replace("(", r"\(").replace(".", r"\.").replace("`-e \\.`", ".*")):
        provide(orders)


def test_no_interpreter_is_said(tmp_path: Path, orders: Launch) -> None:
    with pytest.raises(LaunchError, match=r"environment\.python names python9, and there is none on this node"):
        provide(orders_of(tmp_path, "digits-1", python="python9"))


def test_jobs_that_start_together_make_it_once(tmp_path: Path, orders: Launch) -> None:
    (tmp_path / "made.wait").touch()
    words: list[str] = []
    found: list[venvs.Venv] = []
    jobs = [orders_of(tmp_path, f"digits-{n}") for n in range(4)]
    threads = [threading.Thread(target=lambda job=job: found.append(provide(job, began=words.append))) for job in jobs]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    deadline(lambda: len(words) == 4, "one to make it and three to wait", 60)
    (tmp_path / "made.wait").unlink()
    for thread in threads:
        thread.join(60)
    assert (len(found), len({one.path for one in found}), len(made(tmp_path))) == (4, 1, 1)
    assert sorted(word.split()[0] for word in words) == ["building", "waiting", "waiting", "waiting"]


def test_a_failure_is_told_with_its_last_words_to_all_who_waited_and_tried_again_later(tmp_path: Path, orders: Launch) -> None:
    (tmp_path / "made.wait").touch()
    (tmp_path / "made.fail").touch()
    words: list[str] = []
    faults: list[LaunchError] = []

    def run(job: Launch) -> None:
        try:
            provide(job, began=words.append)
        except LaunchError as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=(orders_of(tmp_path, f"digits-{n}"),)) for n in range(3)]
    for thread in threads:
        thread.start()
    deadline(lambda: len(words) == 3, "one to make it and two to wait", 60)
    (tmp_path / "made.wait").unlink()
    for thread in threads:
        thread.join(60)
    said = "pip could not install requirements.txt: ERROR: no such package"
    assert [(str(fault), fault.lines) for fault in faults] == [(said, ["ERROR: no such package"])] * 3
    (tmp_path / "made.fail").unlink()
    provide(orders)


def test_giving_up_leaves_nothing_that_runs_or_is_used(tmp_path: Path, orders: Launch) -> None:
    (tmp_path / "made.wait").touch()

    def check() -> None:
        if made(tmp_path) and list((tmp_path / "venvs").glob("*/bin/python")):
            raise Stopped

    with pytest.raises(Stopped):
        provide(orders, check)
    assert list((tmp_path / "venvs").glob("*.json")) == []
    (tmp_path / "made.wait").unlink()
    provide(orders)
    assert len(made(tmp_path)) == 2


def test_one_whose_maker_was_killed_is_made_anew_once_nothing_of_it_runs(tmp_path: Path, orders: Launch) -> None:
    (tmp_path / "made.wait").touch()
    program = "import json, sys; from trainmaster.agent.launch import venvs; o = json.loads(sys.argv[1]);"
    program += "venvs.provide(o, o['work'], lambda: None, lambda words: print(words, flush=True))"
    maker = subprocess.Popen([sys.executable, "-c", program, json.dumps(orders)], stdout=subprocess.PIPE)
    assert maker.stdout is not None
    maker.stdout.readline()
    deadline(lambda: (tmp_path / "made.pip").exists(), "it to be half-made", 60)  # its pip runs, and holds the lock
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    time_is_up = time.monotonic() + 0.3

    def check() -> None:
        if time.monotonic() > time_is_up:
            raise Stopped

    with pytest.raises(Stopped):
        provide(orders, check)
    assert len(made(tmp_path)) == 1
    (tmp_path / "made.wait").unlink()
    provide(orders)
    assert len(made(tmp_path)) == 2


def test_the_least_used_goes_and_none_in_use(tmp_path: Path, orders: Launch) -> None:
    def of(text: str, max_bytes: int = 1 << 40) -> venvs.Venv:
        write(tmp_path / "work" / "requirements.txt", text)
        return provide(orders_of(tmp_path, "digits-1", max_bytes=max_bytes))

    used, idle, killed, last = of("a"), of("b"), of("c"), of("d")
    for age, one in enumerate([idle, used, killed, last]):
        os.utime(f"{one.path}.json", (1000 + age, 1000 + age))
    for one in (idle, killed, last):
        one.release()
    orphan = subprocess.Popen(["sleep", "600"], env={**os.environ, "VIRTUAL_ENV": killed.path})  # its agent was killed
    try:
        newest = of("e", max_bytes=1)
        left = sorted(str(path).removesuffix(".json") for path in (tmp_path / "venvs").glob("*.json"))
        assert left == sorted([used.path, killed.path, newest.path])
        assert not os.path.exists(idle.path)
    finally:
        orphan.kill()
        orphan.wait()
    assert of("b", max_bytes=1).path == idle.path
    assert not os.path.exists(f"{killed.path}.json")
