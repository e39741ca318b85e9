"""What the everyday commands answer at the real command line: tables on any terminal, files, notifications, start times, other names.

All jobs have a time limit, so that nothing is known of those without one: see the test of `tm why`.
"""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from running import Tm, server
from waiting import deadline

from trainmaster.cli.examples import EXAMPLES
from trainmaster.cli.render.table import width_of

UP = ("--nodes", "1", "--gpus-per-node", "2")
LIMIT = ("--time-limit", "1h")
REASON = "the data of 学習 is not complete, and will not be before the beginning of next week"
ELSEWHERE = "http://127.0.0.1:9"
PYARROW = """\
import os

def table(columns):
    return columns
"""
PARQUET = """\
import errno, json, os

def write_table(table, file):
    data = json.dumps(table).encode()
    file.write(data[:10])
    file.flush()
    if "FULL" in os.environ:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.write(data[10:])
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("answers"), *UP) as tm:
        yield tm


@pytest.fixture
def tm(shared: Tm, tmp_path: Path) -> Tm:
    """The shared server, from a work directory of the test's own."""
    return Tm(tmp_path, shared.home.root)


@pytest.fixture(scope="module")
def trained(shared: Tm) -> str:
    """A job that has succeeded."""
    program = "for n in 1 2; do echo step $n loss 0.$n; done"
    job = shared.submit("--name", "trained", "--tag", "owner=team-a", *LIMIT, "--", program)
    assert shared.ended(job)["state"] == "succeeded"
    return job


@pytest.fixture(scope="module")
def held(shared: Tm) -> str:
    """One that is held for a long reason."""
    job = shared.submit("--name", "held-for-a-while", "--begin", "+1d", *LIMIT, "--", "true")
    assert shared.ok("update", job, "--hold", "--reason", REASON) == f"{job} has been held\n"
    deadline(lambda: REASON in shared.show(job)["reason"], "the hold", 20.0)
    return job


def on_terminal(tm: Tm, columns: int, *arguments: str, **variables: str) -> list[str]:
    """The lines that a command shows on a terminal of that width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in tm.environment.items() if name not in ("COLUMNS", "LINES")}
    environment = {**inherited, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", *arguments], cwd=tm.work, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 65536):
            seen += block
    except OSError:  # everybody has closed it
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0, seen
    return seen.decode().splitlines()


def test_the_columns_of_ps(tm: Tm, trained: str, held: str) -> None:
    user = tm.show(trained)["member"]
    wanted = ("ps", "--name", "trained", "--columns")
    assert [line.split() for line in tm.ok(*wanted, "id,user,tags").splitlines()] == [
        ["ID", "USER", "TAGS"], [trained, user, "owner=team-a"],
    ]  # fmt: skip
    usual = ["ID", "STATE", "TRY", "STEP", "METRIC", "ELAPSED", "AGE"]
    assert tm.ok(*wanted, "+user,+name").splitlines()[0].split() == [*usual, "USER", "NAME", "WHERE", "/", "WHY"]
    assert tm("ps", "--columns", "id,usr").err.startswith("error: --columns: there is no column 'usr'; did you mean 'user'?\n")


@pytest.mark.parametrize("variables", [{}, {"COLUMNS": "60"}], ids=["the terminal's width", "COLUMNS"])
def test_ps_on_a_narrow_terminal_is_one_line_for_each_job(tm: Tm, trained: str, held: str, variables: dict[str, str]) -> None:
    lines = on_terminal(tm, 200 if variables else 60, "ps", "--limit", "1000", **variables)
    jobs = tm.ok("ps", "-q", "--limit", "1000").split()
    assert [line.split()[0] for line in lines] == ["ID", *jobs]
    assert max(map(width_of, lines)) <= 60
    (line,) = [line for line in lines if line.startswith(held)]
    assert line[lines[0].index("WHERE") :].startswith("held by")
    assert line.endswith("…")
    whole = on_terminal(tm, 300, "ps", "--limit", "1000")
    assert [line.endswith(REASON) for line in whole if line.startswith(held)] == [True]


def test_ps_in_a_pipe_is_complete_whatever_the_width(tm: Tm, trained: str, held: str) -> None:
    tm.environment["COLUMNS"] = "60"
    (line,) = [line for line in tm.ok("ps", "--limit", "1000").splitlines() if line.startswith(held)]
    assert line.endswith(REASON)


def test_a_job_is_held_with_a_reason_and_released(tm: Tm, held: str) -> None:
    user = tm.show(held)["member"]
    assert " ".join(tm.ok("show", held).split()).startswith(f"{held} held for ")
    assert f"held by {user}: {REASON}" in " ".join(tm.ok("show", held).split())
    assert tm("update", held, "--reason", "x").refusal == (2, "error: --reason is for --hold\n  give both, or none\n")
    other = tm.submit("--hold", *LIMIT, "--", "true")
    tm.ok("update", other, "--hold", "--reason", "not yet")
    deadline(lambda: tm.show(other)["reason"] == f"held by {user}: not yet", "the reason", 20.0)
    tm.ok("release", other)
    assert tm.ended(other)["state"] == "succeeded"


def test_points_are_written_as_parquet_whole_or_not_at_all(tm: Tm, trained: str) -> None:
    """With a stand-in for pyarrow; tests/extras has the real one."""
    for name, text in (("__init__", PYARROW), ("parquet", PARQUET)):
        tm.file(f"library/pyarrow/{name}.py", text)
    before = filter(None, [os.environ.get("PYTHONPATH")])
    tm.environment["PYTHONPATH"] = os.pathsep.join([str(tm.work / "library"), *before])
    file = tm.file("out/points.parquet", "of yesterday")
    asked = ("metrics", trained, "--metric", "loss", "--parquet", "out/points.parquet")
    tm.environment["FULL"] = "1"
    assert tm(*asked).refusal == (
        1, "error: out/points.parquet cannot be written: No space left on device\n  choose another place\n"
    )  # fmt: skip
    assert (file.read_text(), os.listdir(file.parent)) == ("of yesterday", [file.name])
    del tm.environment["FULL"]
    said = tm(*asked)
    assert (said.code, said.out, said.err) == (0, "", "out/points.parquet: 2 points\n")
    table = json.loads(file.read_text())
    assert {name: table[name] for name in ("job", "metric", "step", "value", "attempt")} == {
        "job": [trained] * 2, "metric": ["loss"] * 2, "step": [1, 2], "value": [0.1, 0.2], "attempt": [1, 1],
    }  # fmt: skip
    assert os.listdir(file.parent) == [file.name]


@contextmanager
def webhooks() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A server of webhooks: its URL, and what arrived, each with its path. It refuses what is posted to /broken."""
    arrived: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(503 if self.path == "/broken" else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    hooks = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=hooks.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{hooks.server_port}", arrived
    finally:
        hooks.shutdown()
        hooks.server_close()


def test_a_webhook_is_told_of_ends_and_of_failures(tm: Tm) -> None:
    with webhooks() as (url, arrived):
        fails = ("--restarts", "0", *LIMIT, "--", "exit 3")
        quiet = tm.submit("--notify", f"{url}/failures", "--notify-on", "failure", *LIMIT, "--", "true")
        tm.ended(quiet)
        good = tm.submit("--notify", f"{url}/ends", *LIMIT, "--", "true")
        bad = tm.submit("--notify", f"{url}/failures", "--notify", f"{url}/broken", "--notify-on", "failure", *fails)
        deadline(lambda: len(arrived) >= 3, "the messages", 30.0)
        told = dict(arrived)
        refused = f"the notification to {url}/… was not delivered: it answered 503 Service Unavailable; it is tried again"
        deadline(lambda: refused in [one["text"] for one in tm.show(bad)["troubles"]], "the warning", 20.0)
    assert sorted(path for path, _ in arrived) == ["/broken", "/ends", "/failures"]
    assert told["/broken"] == told["/failures"]
    assert (told["/ends"]["job"], told["/ends"]["state"], told["/ends"]["text"]) == (good, "succeeded", f"{good} has succeeded")
    failed = told["/failures"]
    assert (failed["job"], failed["state"], failed["exit_code"]) == (bad, "failed", 3)
    assert failed["text"].startswith(f"{bad} has failed: ")


def test_why_says_the_bound_if_it_is_far_from_the_middle(tm: Tm) -> None:
    """Nothing is known of jobs without a limit, so one that has begun may end soon, or late."""
    runs = tm.submit("--gpus", "2", "--cpus", "0.1", "--", "sleep 600")
    tm.state(runs, "running")
    waits = tm.submit("--gpus", "2", "--cpus", "0.1", *LIMIT, "--", "true")
    tm.state(waits, "queued")
    eta_s = tm.json("why", waits)["eta_s"]
    assert eta_s["high90"] > 4 * eta_s["p50"]
    said = tm.ok("why", waits).splitlines()[-1]
    found = re.match(r"It will probably start within (\d+ min) \(90 %\), ", said)
    assert found is not None, said
    assert int(found[1].split()[0]) * 60 >= eta_s["high90"] - 60
    tm.ok("cancel", waits, runs)
    assert tm.ended(runs)["state"] == "cancelled"


def test_up_and_down_are_of_this_machine_even_if_another_server_is_configured(tm: Tm) -> None:
    url = tm.json("up")["url"]
    there = Tm(tm.work, tm.home.root)
    there.environment["TRAINMASTER_SERVER"] = ELSEWHERE
    note = f"this is this machine's own server; other commands use {ELSEWHERE}, which $TRAINMASTER_SERVER names\n"
    said = there("up")
    assert (said.code, said.out) == (0, f"already running: {url}\n")
    assert said.err.endswith(note)
    job = tm.submit(*LIMIT, "--", "sleep 600")
    tm.state(job, "running")
    said = there("down")
    assert (said.code, f"{job} keeps running on node0\n" in said.out) == (0, True)
    assert said.err.endswith(f"\n{note}")
    assert tm("ps").code == 7
    said = there("up")
    assert (said.code, said.out.startswith("started: http://127.0.0.1:")) == (0, True)
    assert said.err.endswith(note)
    there.environment["TRAINMASTER_SERVER"] = tm.json("up")["url"]
    assert "other commands" not in there("up").err
    tm.ok("cancel", job)


def test_a_time_of_day_is_the_next_one_in_the_zone_of_the_submitter(tm: Tm) -> None:
    tm.environment["TZ"] = "Asia/Kolkata"
    for minutes, later in ((2, 0), (-2, 1)):
        begins = (datetime.now(ZoneInfo("Asia/Kolkata")) + timedelta(minutes=minutes)).replace(second=0, microsecond=0)
        said = tm("submit", "--begin", f"{begins:%H:%M}", *LIMIT, "--", "true")
        job, utc = said.out.strip(), (begins + timedelta(days=later)).astimezone(UTC)
        assert said.err.endswith(f"next: tm why {job}   to start it without waiting: tm release {job}\n")
        assert tm.show(job)["start"]["begin_s"] == utc.timestamp()
        assert tm.ok("why", job) == f"{job} is held: begins at {utc:%Y-%m-%d %H:%M:%S} UTC.\n"
        tm.ok("cancel", job)
    wrong = tm("submit", "--begin", "25:00", "--", "true")
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "error: begin: '25:00' is not a time")


def test_names_of_other_systems(tm: Tm, trained: str) -> None:
    waits = tm.submit("--hold", *LIMIT, "--", "true")
    listed = tm.ok("squeue", "-q").split()
    assert (waits in listed, trained in listed, trained in tm.ok("ps", "-q").split()) == (True, False, True)
    tm.ok("cancel", waits)
    for line, hint in (
        ("salloc -N 1", "an allocation to work in is not there yet; meanwhile: tm submit -- sleep 2h   then: tm attach JOB"),
        ("squeu", "did you mean: tm ps"),
        ("scontrol hold j", "use: tm hold"),
        ("scontrol requeue j", "use: tm rerun"),
        ("scontrol show node n0", "use: tm nodes"),
    ):
        name = line.split()[0]
        assert tm(*line.split()).refusal == (2, f"error: there is no command {name!r}\n  {hint}\n")


@pytest.mark.parametrize("command", ["simulate", "simulate trace"])
def test_the_examples_of_a_simulation_work_as_they_are(tm: Tm, trained: str, command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{EXAMPLES[command]} --no-report"], cwd=tm.work, env=tm.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first = [line.split()[0] for line in done.stdout.splitlines()[:3]]
    assert first == ["CASE", *(("now", "fifo") if command == "simulate" else ("now", "then"))]
