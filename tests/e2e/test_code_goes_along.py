"""What goes along with a job at the real command line: files, variables, umask, input, and data beside the directory."""

import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import Tm

from trainmaster import daemons

ALL = "to see all that goes along: tm plan, with the same arguments"


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A home that does not exist yet: the first test starts its server."""
    tm = Tm(tmp_path_factory.mktemp("along"))
    tm.environment["XDG_CACHE_HOME"] = str(tm.work.parent / "cache")
    try:
        yield tm
    finally:
        tm("down", "--cancel", timeout_s=100.0)
        daemons.stop(tm.home)


@pytest.fixture(scope="module")
def developer(tm: Tm) -> Tm:
    """The same directory and server with a Python first on the PATH in which the package `mine` is installed as editable."""
    root = tm.work.parent
    source, python = root / "library", root / "env"
    (source / "mine").mkdir(parents=True)
    (source / "mine" / "__init__.py").write_text("")
    venv.create(python, symlinks=True)
    (site,) = python.glob("lib/python*/site-packages")
    (site / "mine.pth").write_text(f"{source}\n")
    (site / "mine-1.0.dist-info").mkdir()
    (site / "mine-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    installed = {"url": source.as_uri(), "dir_info": {"editable": True}}
    (site / "mine-1.0.dist-info" / "direct_url.json").write_text(json.dumps(installed))
    there = Tm(root, tm.home.root)
    there.environment["XDG_CACHE_HOME"] = tm.environment["XDG_CACHE_HOME"]
    there.environment["PATH"] = f"{python / 'bin'}{os.pathsep}{tm.environment['PATH']}"
    return there


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """A file to which another thread appends all the time."""
    over = threading.Event()

    def write() -> None:
        with path.open("a") as log:
            while not over.wait(0.0005):
                log.write("step 1 loss 0.5\n")
                log.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def test_the_log_of_the_command_and_a_log_that_grows_are_no_reason_to_refuse(tm: Tm) -> None:
    """Seen: `tm run … > one.log 2>&1` in an empty home failed every time, and a growing log refused two of three submits."""
    tm.file("t.py", "import os; print(sorted(name for name in os.listdir() if name != 'train.log'))\n")
    with (tm.work / "one.log").open("w") as log, written_to(tm.work / "train.log"):
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", "run", "--", "python3", "t.py"], cwd=tm.work, env=tm.environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=60, check=False,
        )  # fmt: skip
        codes = [tm("submit", "--", "true").code for _ in range(3)]
    assert (done.returncode, codes) == (0, [0, 0, 0]), (tm.work / "one.log").read_text()
    assert "\n['t.py']\n" in (tm.work / "one.log").read_text()
    (tm.work / "train.log").unlink()
    (tm.work / "one.log").unlink()


def test_plan_and_submit_list_what_goes_along(developer: Tm) -> None:
    tm, source = developer, developer.work.parent / "library"
    tm.file("t.py", "print('trained')\n")
    tm.file("models/base.pt", "weights")
    tm.file(".env", "TOKEN=secret")
    tm.file("data/x.csv", "1")
    shell = [name for name in ("LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TZ", "VIRTUAL_ENV") if name in tm.environment]
    left_out = [
        {"path": ".env", "why": "credentials may be in it"},
        {"path": "models/base.pt", "why": "the job writes 'models/*.pt'"},
    ]
    command = ("--checkpoint", "models/*.pt", "--env", "A=1", "--", "python3", "t.py")
    found = json.loads(tm.ok("plan", "--json", *command))
    assert {name: found[name] for name in ("copied", "linked", "left_out", "editable")} == {
        "copied": [{"path": "models/", "bytes": 0}, {"path": "t.py", "bytes": (tm.work / "t.py").stat().st_size}],
        "linked": [{"path": "data", "why": "named as data"}], "left_out": left_out, "editable": {"mine": str(source)},
    }  # fmt: skip
    assert set(shell) <= set(found["variables"]["shell"])
    assert found["variables"]["job"] == ["A"]
    size = f"{(tm.work / 't.py').stat().st_size} B"
    listed = [
        f"copied    {size:>9}  t.py", "linked    data  (named as data)", "left out  .env  (credentials may be in it)",
        "          models/base.pt  (the job writes 'models/*.pt')",
        f"imports   mine from {source}  (an editable install, not copied)",
    ]  # fmt: skip
    assert [line for line in tm.ok("plan", *command).splitlines() if line in listed] == listed
    said = tm("submit", "-v", *command)
    assert [line for line in said.err.splitlines() if line in listed] == listed
    assert "A of the job" in said.err
    assert ALL not in said.err
    said = tm("submit", *command)
    notable = "not copied: .env (credentials may be in it); not copied: models/base.pt (the job writes 'models/*.pt')"
    imported = f"imported from its source, not from the copy: mine from {source}"
    assert [line for line in said.err.splitlines() if line.startswith("not copied")] == [f"{notable}; {imported}; {ALL}"]
    for name in ("models/base.pt", ".env"):
        (tm.work / name).unlink()


def test_a_job_imports_an_editable_install_from_where_show_says(tm: Tm, developer: Tm) -> None:
    source = developer.work.parent / "library"
    developer.file("uses.py", "import mine; print(mine.__file__)\n")
    said = developer("submit", "--", "python3", "uses.py")
    job = said.out.strip()
    line = f"imported from its source, not from the copy: mine from {source}; {ALL}"
    assert line in said.err.splitlines()
    assert f" imports mine from {source}, not from the copy " in " ".join(tm.ok("show", job).split())
    assert tm.ended(job)["state"] == "succeeded"
    assert tm.ok("logs", job) == f"{source}/mine/__init__.py\n"
    (developer.work / "uses.py").unlink()


def test_data_beside_the_directory_is_named_by_the_failure(tm: Tm) -> None:
    (tm.work.parent / "data").mkdir()
    (tm.work.parent / "data" / "train.csv").write_text("42")
    tm.file("beside.py", "import os; print(open('../data/train.csv').read())\n")
    said = tm("run", "--restarts", "0", "--", "python3", "beside.py")
    assert said.code == 10
    assert (
        "No such file or directory: '../data/train.csv'; ../data exists where you submitted from; use --in-place, or "
        "--workdir .. (the command then starts there)"
    ) in said.err
    assert tm("run", "--in-place", "--", "python3", "beside.py").out == "42\n"
    assert tm("run", "--workdir", "..", "--", f"cd {tm.work.name} && python3 beside.py").out == "42\n"


def test_the_umask_of_the_shell_holds_and_input_is_refused(tm: Tm) -> None:
    tm.file("write.py", "import os; open('made', 'w'); print(oct(os.stat('made').st_mode & 0o777))\n")
    line = 'umask 027; exec "$0" -m trainmaster run -- python3 write.py'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable], cwd=tm.work, env=tm.environment, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.stdout == "0o640\n", done.stderr
    for stdin, command, words in (
        (subprocess.PIPE, ["bash"], "bash without a file reads its program from its input, and a job has no standard input"),
        ((tm.work / "write.py").open(), ["cat"], "so the file that is redirected into this command is not read"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", "run", "--", *command], cwd=tm.work, env=tm.environment, stdin=stdin,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert words in done.stderr


def test_a_python_that_does_not_exist_is_refused_with_its_place(tm: Tm) -> None:
    tm.file("bad.yaml", "command: python train.py\nenvironment:\n  python: none/bin/python\n")
    schema = "  `tm schema` lists every field.\n"
    missing = f"environment.python: the interpreter {tm.work}/none/bin/python does not exist\n"
    assert tm("submit", "bad.yaml").refusal == (2, f"bad.yaml:3:11: {missing}{schema}")
    assert tm("plan", "--python", "none/bin/python", "--", "python", "t.py").refusal == (2, f"error: {missing}{schema}")
    said = tm("submit", "--python", "python2.99", "--", "python", "t.py")
    assert said.refusal == (2, f"error: environment.python: there is no program 'python2.99' on the PATH\n{schema}")


def test_data_that_changed_while_the_job_waited_is_said(tm: Tm) -> None:
    """T4: two runs on different data were called equal, because both were looked at when they were submitted."""
    tm.file("d/train.csv", "1,2\n")
    tm.file("reads.yaml", "command: cat ../../../../d/train.csv || true\nname: reads\ndata: {train: d}\n")
    first = tm.ended(tm.submit("reads.yaml"))
    assert [one["topic"] for one in first["troubles"]] == []
    late = tm.submit("--hold", "reads.yaml")
    tm.file("d/train.csv", "1,3\n")
    tm.ok("release", late)
    shown = tm.ended(late)
    assert [(one["topic"], one["text"]) for one in shown["troubles"]] == [
        ("data", "train has changed since the submit, as seen when attempt 1 began")
    ]
    compared = tm.ok("compare", first["id"], late)
    assert f"data train: it had changed since the submit when attempt 1 began ({late})" in " ".join(compared.split())
