"""The record of a run: interpreter and packages, git without credentials, patches within bounds."""

import errno
import json
import os
import platform
import stat
import subprocess
import sys
import threading
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, cast

import pytest
from launches import launch, write

from trainmaster.agent.environment import installed_packages, machine, package_metadata
from trainmaster.agent.environment.detect import EnvironmentRecorder
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.client.code_copy import git
from trainmaster.client.servers.settings import default_tags
from trainmaster.errors import NotFoundError, UsageError
from trainmaster.model.redaction import without_credentials
from trainmaster.model.spec import CodeCopy
from trainmaster.server.record.provenance import read_diff
from trainmaster.server.runtime.services import Services
from trainmaster.testing import builders


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ada:s3cret@host.org/a/b.git", "https://host.org/a/b.git"),
        ("https://ghp_token@host.org/a/b.git?token=x#y", "https://host.org/a/b.git"),
        ("ssh://git:word@host.org:22/a/b", "ssh://git@host.org:22/a/b"),
        ("git@host.org:a/b.git", "git@host.org:a/b.git"),
        ("/srv/git/b.git", "/srv/git/b.git"),
    ],
)
def test_a_remote_keeps_no_credentials(url: str, kept: str) -> None:
    assert without_credentials(url) == kept


def repository(root: Path) -> Path:
    root.mkdir()
    for command in (["init", "-q"], ["remote", "add", "origin", "https://ada:s3cret@host.org/a.git"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    write(root / "train.py", "print(1)\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    subprocess.run(["git", *author, "commit", "-qm", "one"], cwd=root, check=True)
    return root


def test_a_patch_can_be_applied_and_is_bounded(tmp_path: Path) -> None:
    root = repository(tmp_path / "a")
    assert git.Differ(str(root)).patch() is None
    write(root / "train.py", "print(2)\n")
    patch = git.Differ(str(root)).patch()
    assert patch is not None
    assert not patch.cut
    subprocess.run(["git", "apply", "-R"], cwd=root, input=patch.data, check=True)
    assert (root / "train.py").read_text() == "print(1)\n"
    write(root / "train.py", "x = 1\n" * 1_500_000)
    long = git.Differ(str(root)).patch()
    assert long is not None
    assert (long.cut, long.bytes > git.DIFF_MAX_BYTES >= len(long.data), long.data[-1:]) == (True, True, b"\n")


def test_a_patch_can_be_applied_whatever_is_configured(tmp_path: Path) -> None:
    """With `diff.context` 0, `git apply` refused it."""
    root = repository(tmp_path / "a")
    for name, value in (("context", "0"), ("noprefix", "true"), ("mnemonicPrefix", "true"), ("srcPrefix", "x/"), ("renames", "copies")):
        subprocess.run(["git", "config", f"diff.{name}", value], cwd=root, check=True)
    write(root / "train.py", "print(1)\nprint(2)\n")
    patch = git.Differ(str(root)).patch()
    assert patch is not None
    subprocess.run(["git", "apply"], cwd=repository(tmp_path / "b"), input=patch.data, check=True)
    assert (tmp_path / "b" / "train.py").read_text() == "print(1)\nprint(2)\n"


@pytest.mark.parametrize("place", ["", "inner"])
def test_the_patch_of_a_directory_below_the_top_names_its_files_as_git_apply_does(tmp_path: Path, place: str) -> None:
    """In the directory itself, git took them for files outside of it and applied nothing, without a word."""
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    root = repository(tmp_path / "a")
    (root / "inner").mkdir()
    write(root / "inner" / "more.py", "print(1)\n")
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    subprocess.run(["git", *author, "commit", "-qm", "two"], cwd=root, check=True)
    subprocess.run(["git", "config", "diff.relative", "true"], cwd=root, check=True)
    subprocess.run(["git", "clone", "-q", str(root), str(tmp_path / "b")], check=True)
    for name in ("train.py", "inner/more.py"):
        write(root / name, "print(2)\n")
    patch = git.Differ(str(root / "inner")).patch()
    assert patch is not None
    subprocess.run(["git", "apply"], cwd=tmp_path / "b" / place, input=patch.data, check=True)
    assert [(tmp_path / "b" / name).read_text() for name in ("train.py", "inner/more.py")] == ["print(1)\n", "print(2)\n"]


def test_a_patch_has_binary_files_and_bytes_of_any_encoding(tmp_path: Path) -> None:
    """T8: a changed picture or a latin-1 source made a patch that could not be applied."""
    root = repository(tmp_path / "a")
    before = {"b.bin": bytes(range(256)), "l.txt": b"caf\xe9 = 1\n", "crlf.txt": b"a\r\n"}
    after = {"b.bin": bytes(reversed(range(256))), "l.txt": b"caf\xe9 = 2\n", "crlf.txt": b"b\r\n"}
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for files in (before, after):
        for name, data in files.items():
            (root / name).write_bytes(data)
        if files is before:
            subprocess.run(["git", "add", "."], cwd=root, check=True)
            subprocess.run(["git", *author, "commit", "-qm", "two"], cwd=root, check=True)
    patch = git.Differ(str(root)).patch()
    assert patch is not None
    subprocess.run(["git", "clone", "-q", str(root), str(tmp_path / "b")], check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path / "b", input=patch.data, check=True)
    assert {name: (tmp_path / "b" / name).read_bytes() for name in after} == after


def test_the_remote_of_a_work_tree_is_its_repository_s(tmp_path: Path) -> None:
    root = repository(tmp_path / "a")
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "b"), "-b", "other"], cwd=root, check=True)
    (root / "inner").mkdir()
    assert [git.remote(str(place)) for place in (root, root / "inner", tmp_path / "b")] == ["https://host.org/a.git"] * 3
    assert git.remote(str(tmp_path)) is None


def test_the_packages_are_those_that_the_interpreter_itself_names() -> None:
    found = installed_packages.Installation(sys.executable, {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"})
    packages, editable = found.packages()
    real = {package_metadata.normalized(one.metadata["Name"]): one.version for one in distributions()}
    assert {name: packages.get(name) for name in real} == real
    assert "trainmaster" in editable or packages["trainmaster"]
    assert found.version() == platform.python_version()


def test_what_identifies_a_package_that_no_index_has(tmp_path: Path) -> None:
    """A package that was installed anew from a directory or from another commit has the same version and other code."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    write(tmp_path / "pyvenv.cfg", "home = /usr/bin\n")
    vcs = {"url": "https://host.org/a", "vcs_info": {"vcs": "git", "commit_id": "c" * 40}}
    write(site / "git-1.dist-info" / "direct_url.json", json.dumps(vcs))
    write(site / "index-1.dist-info" / "RECORD", "index.py,sha256=a,1\n")
    write(site / "bare-1.dist-info" / "direct_url.json", "{}")
    write(site / "edit-1.dist-info" / "direct_url.json", '{"dir_info": {"editable": true}}')

    def installed(code: str, place: str) -> dict[str, str]:
        write(site / "mine-1.dist-info" / "direct_url.json", json.dumps({"dir_info": {}, "url": f"file://{place}"}))
        rows = (f"mine.py,sha256={code},9", "__pycache__/mine.pyc,,", "mine-1.dist-info/direct_url.json,sha256=" + place, f"../../../bin/mine,sha256={place},1")
        write(site / "mine-1.dist-info" / "RECORD", "\n".join(rows) + "\n")
        found = installed_packages.Installation(str(tmp_path / "bin" / "python3.11"), {"PYTHONNOUSERSITE": "1"})
        return found.built_from(found.packages()[1])

    one, again, other = installed("a", "/one"), installed("a", "/two"), installed("b", "/one")
    assert one == again
    assert {**one, "mine": ""} == {"git": "commit cccccccccccc", "mine": "", "bare": ""}
    assert one["mine"].startswith("files ")
    assert other["mine"] not in (one["mine"], "")


def test_code_that_lies_elsewhere_is_told_whoever_installed_it(tmp_path: Path) -> None:
    """`uv` writes JSON without spaces, `setup.py develop` a line in a `.pth` file: edited source passed as the same packages."""
    venv, mine = tmp_path / "venv", tmp_path / "mine"
    site = venv / "lib" / "python3.11" / "site-packages"
    write(venv / "pyvenv.cfg", "home = /usr/bin\n")
    write(site / "by_uv-1.dist-info" / "direct_url.json", f'{{"url":"file://{mine}/by%20uv","dir_info":{{"editable":true}}}}')
    write(site / "torn-1.dist-info" / "direct_url.json", '{"url":')
    write(site / "by_uv.pth", f"{mine}/by uv/src\n")
    write(site / "easy-install.pth", f"\ufeff{mine}/old\n# a comment\nimport sys; sys.path\n{tmp_path}/nowhere\n./an_egg-3-py3.11.egg\n")
    write(site / "paths.pth", f"{mine}/loose\n{tmp_path}/other/site-packages")
    write(site / "an_egg-3-py3.11.egg" / "EGG-INFO" / "PKG-INFO", "")
    write(tmp_path / "other" / "site-packages" / "shared-5.dist-info" / "METADATA", "")
    write(mine / "old" / "Old.Thing.egg-info" / "PKG-INFO", "Metadata-Version: 2.1\nName: Old.Thing\nVersion: 0.3\n")
    write(mine / "by uv" / "src" / "by_uv.egg-info" / "PKG-INFO", "Version: 9\n")
    write(mine / "loose" / "code.py", "")

    def found() -> installed_packages.Installation:
        return installed_packages.Installation(str(venv / "bin" / "python3.11"), {"PYTHONNOUSERSITE": "1"})

    packages, editable = found().packages()
    assert packages == {"by-uv": "1", "torn": "1", "an-egg": "3", "old-thing": "0.3", "shared": "5"}
    assert editable == ["by-uv", "old-thing"]
    assert found().editable_sources() == {"by-uv": f"{mine}/by uv", "old-thing": f"{mine}/old"}
    assert (found().built_from(editable), found().unnamed()) == ({"torn": ""}, [f"{mine}/loose"])
    before = found().fingerprint()
    os.utime(mine / "old" / "Old.Thing.egg-info" / "PKG-INFO", ns=(1, 1))
    assert found().fingerprint() != before


def test_what_cannot_be_read_is_told_and_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error made the list shorter, and the short list was used for all later jobs."""
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    write(tmp_path / "venv" / "pyvenv.cfg", "home = /usr/bin\n")
    write(site / "one-1.dist-info" / "direct_url.json", "{}")
    write(site / "long.pth", "x" * 5000)
    write(tmp_path / "venv" / "bin" / "python", "").chmod(0o755)
    orders = launch(tmp_path, command=[str(tmp_path / "venv" / "bin" / "python"), "t.py"], environment={"PYTHONNOUSERSITE": "1"})

    def record() -> dict[str, Any]:
        made: dict[str, Any] = json.loads((tmp_path / "environments" / f"{EnvironmentRecorder(orders).record()}.json").read_bytes())
        return made

    real = os.listdir
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: failing() if str(path) == str(site) else real(path))
        short = record()
    assert (short["packages"], short["unread"]) == ({}, [f"{site} (Input/output error)"])
    whole = record()
    assert (whole["packages"], "unread" in whole) == ({"one": "1"}, False)
    assert EnvironmentRecorder(orders).digest is not None
    (site / "one-1.dist-info" / "direct_url.json").unlink()
    os.mknod(site / "one-1.dist-info" / "direct_url.json", stat.S_IFSOCK | 0o600)
    found = installed_packages.Installation(str(tmp_path / "venv" / "bin" / "python"), {})
    assert (found.built_from(()), found.unread()) == ({}, [f"{site}/one-1.dist-info/direct_url.json (No such device or address)"])
    assert found.torch({"torch": "2.3"}) is None, "what it was built for is not known"
    write(site / "torch" / "version.py", "cuda: Optional[str] = None\n")
    assert found.torch({"torch": "2.3"}) == {"version": "2.3", "cuda": None, "hip": None}


def failing() -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_driver_that_was_loaded_anew_makes_another_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LOADED", str(write(tmp_path / "version", "NVRM version: 550.54\n")))
    monkeypatch.setattr(machine, "_CARDS", str(tmp_path / "gpus"))
    monkeypatch.setattr(machine, "_PCI", str(tmp_path / "pci"))
    orders = launch(tmp_path)
    EnvironmentRecorder(orders).record()
    changes = (("version", "NVRM version: 570.10\n"), ("gpus/0000:41:00.0/information", ""), ("pci/0000:41:00.0/device", "0x2330\n"))
    for path, data in changes:
        assert EnvironmentRecorder(orders).digest is not None
        write(tmp_path / path, data)
        assert EnvironmentRecorder(orders).digest is None, path
        EnvironmentRecorder(orders).record()


def test_which_python_a_command_runs_in(tmp_path: Path) -> None:
    python = write(tmp_path / "venv" / "bin" / "python3.9", "")
    script = write(tmp_path / "venv" / "bin" / "torchrun", f"#!{python}\nimport sys\n")
    for path in (python, script, write(tmp_path / "bin" / "python", "")):
        path.chmod(0o755)
    variables = {"PATH": str(tmp_path / "bin")}
    lines = {
        f"cd x && {python} train.py": str(python),
        "OMP=1 python train.py | tee log": str(tmp_path / "bin" / "python"),
        "venv/bin/python3.9 -m train": str(python),
        "make train": str(tmp_path / "bin" / "python"),
    }
    shell = {line: installed_packages.interpreter(["bash", "-c", line], True, variables, str(tmp_path))[0] for line in lines}
    assert shell == lines
    assert installed_packages.interpreter([str(script), "train.py"], False, variables, "/") == (str(python), True)
    assert installed_packages.interpreter(["true"], False, {"PATH": ""}, "/") == (None, False)


def test_a_relative_directory_of_the_path_is_one_of_the_work_directory(tmp_path: Path) -> None:
    here, other = tmp_path / "work" / "env" / "bin" / "python", tmp_path / "other" / "python"
    for python in (here, other):
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
    work = str(tmp_path / "work")

    def found(line: str, path: str) -> tuple[str | None, bool]:
        return installed_packages.interpreter(["bash", "-c", line], True, {"PATH": path}, work)

    assert found("python train.py", f"env/bin:{other.parent}") == (str(here), False)  # a `cd` of the program leads elsewhere
    assert found("python train.py", f"{other.parent}:env/bin") == (str(other), True)
    assert found(f"{other} train.py", f"env/bin:{other.parent}") == (str(other), True)


def test_whether_a_command_surely_starts_the_python_of_its_record(tmp_path: Path) -> None:
    """Packages of the PATH's Python were recorded although the command started another one."""
    mine, other = write(tmp_path / "a" / "bin" / "python", ""), write(tmp_path / "b" / "bin" / "python", "")
    tool = write(tmp_path / "a" / "bin" / "tool", "#!/usr/bin/env python\n")
    shim = write(tmp_path / "shims" / "python", "#!/bin/sh\n")
    for path in (mine, other, tool, shim, write(tmp_path / "a" / "bin" / "binary", "\0ELF")):
        path.chmod(0o755)
    variables = {"PATH": f"{mine.parent}:/usr/bin:/bin"}

    def found(command: str | list[str], more: dict[str, str] | None = None) -> tuple[str | None, bool]:
        words = ["bash", "-c", command] if isinstance(command, str) else command
        return installed_packages.interpreter(words, isinstance(command, str), {**variables, **(more or {})}, str(tmp_path))

    a, b = str(mine), str(other)
    assert [found(one) for one in (["python", "t.py"], "python t.py", "tool t.py | tee log", ["tool"], "cd x && A=1 python t.py")] == [
        (a, True)
    ] * 5
    sure = (
        ["env", "X=1", b, "t.py"], ["nice", "-n", "5", b, "t.py"], ["timeout", "-k", "5", "60", b, "t.py"], ["bash", "-c", f"{b} t.py"],
        ["taskset", "-c", "0,1", b], ["numactl", "--membind=0", "-N", "0", b], f"set -e\nmkdir -p out; if true; then exec {b} t.py; fi",
        f"nohup {b} t.py > log 2>&1 &\nwait", ["bash", "-eu", "-o", "pipefail", "-c", f"{b} t.py"],
    )  # fmt: skip
    assert [found(one) for one in sure] == [(b, True)] * len(sure)
    doubtful = (
        f". {other.parent}/activate && python t.py", "bash train.sh", "./run.sh", ["bash", "train.sh"], ["binary"], "make train",
        "PATH=/x python t.py", "export PATH=/x; python t.py", ["env", "PYTHONPATH=/lib", "python", "t.py"], "python t.py `date`",
        "conda run python t.py", "python 'open", "bash -lc 'python t.py'", "eval python t.py", ["env", "-i", "python"],
    )  # fmt: skip
    assert [found(one) for one in doubtful] == [(a, False)] * len(doubtful)
    assert [found(f"python a.py; {b} t.py")[1], found("cd x; bin/python t.py")[1], found([str(shim), "t.py"])[1]] == [False] * 3
    assert found(["mpirun", "-np", "4", b, "t.py"]) == (b, False)
    home, sourced, function = {"PYTHONHOME": "/x"}, {"BASH_ENV": "/x"}, {"BASH_FUNC_python%%": "() { :; }"}
    plain, line, nested = ["python", "t.py"], "python t.py", ["nice", "bash", "-c", "python t.py"]
    decided = [[found(one, more)[1] for one in (plain, line, nested)] for more in (home, sourced, function, {"PYTHONUTF8": "1"})]
    assert decided == [[False] * 3, [True, False, False], [True, False, False], [True] * 3]
    mine.chmod(0o311)
    assert os.geteuid() == 0 or not found(plain)[1], "a program whose first line cannot be read may be a script"


def test_the_packages_of_a_user_are_where_python_looks_for_them(tmp_path: Path) -> None:
    python, below = write(tmp_path / "bin" / "python3.11", ""), "lib/python3.11/site-packages"
    for place in ("base", "home/.local"):
        write(tmp_path / place / below / f"{place[:4]}-1.dist-info" / "METADATA", "")
    variables = {"HOME": str(tmp_path / "home"), "PYTHONUSERBASE": str(tmp_path / "base")}
    assert installed_packages.Installation(str(python), variables).packages()[0] == {"base": "1"}
    assert installed_packages.Installation(str(python), {**variables, "PYTHONUSERBASE": ""}).packages()[0] == {"home": "1"}


def test_a_record_is_made_once_and_again_when_a_package_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    write(site / "numpy-2.0.dist-info" / "METADATA", "")
    write(tmp_path / "venv" / "pyvenv.cfg", "home = /usr/bin\n")
    python = write(tmp_path / "venv" / "bin" / "python", "")
    python.chmod(0o755)
    orders = launch(tmp_path, command=[str(python), "train.py"])
    looks: list[int] = []
    whole = EnvironmentRecorder._record
    monkeypatch.setattr(EnvironmentRecorder, "_record", lambda self: looks.append(1) or whole(self))
    outbox = Outbox(str(tmp_path / "spool"), str(tmp_path / "points.jsonl"))
    first = [EnvironmentRecorder(orders) for _ in range(10)]
    for one in first:
        one.record_in_background(outbox)
    for one in first:
        one.finish()
    assert (len({one.digest for one in first}), len(looks), len(outbox.batch()[0])) == (1, 1, 10)
    again = EnvironmentRecorder(orders)
    assert (again.digest, threading.active_count()) == (first[0].digest, threading.active_count())
    record = json.loads((tmp_path / "environments" / f"{again.digest}.json").read_bytes())
    assert (record["packages"], record["machine"]["host"]) == ({"numpy": "2.0"}, os.uname().nodename)
    write(site / "Foo_Bar-1.5.dist-info" / "direct_url.json", '{"dir_info": {"editable": true}}')
    os.utime(site, ns=(1, 1))
    other = EnvironmentRecorder(orders)
    assert other.digest is None
    changed = json.loads((tmp_path / "environments" / f"{other.record()}.json").read_bytes())
    assert (changed["packages"], changed["editable"]) == ({"numpy": "2.0", "foo-bar": "1.5"}, ["foo-bar"])


def test_a_full_disk_costs_the_record_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "environments", "a file where the directory would be")
    outbox = Outbox(str(tmp_path / "spool"), str(tmp_path / "points.jsonl"))
    one = EnvironmentRecorder(launch(tmp_path))
    one.record_in_background(outbox)
    one.finish()
    assert (one.digest, outbox.batch()[0]) == (None, [])
    assert "the environment was not recorded" in capsys.readouterr().err


def test_tags_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write(tmp_path / "config" / "trainmaster" / "trainmaster.toml", '[tags]\nowner = "me"\nteam = "a"\n')
    write(tmp_path / "trainmaster.toml", '[tags]\nowner = "us"\ntask = "x"\n')
    monkeypatch.setenv("TRAINMASTER_TAGS", "task=vision,")
    assert default_tags(tmp_path) == {"owner": "us", "team": "a", "task": "vision"}
    monkeypatch.setenv("TRAINMASTER_TAGS", "task")
    with pytest.raises(UsageError, match="TRAINMASTER_TAGS: expected NAME=VALUE"):
        default_tags(tmp_path)


@pytest.mark.parametrize(
    ("origin", "in_place", "said"),
    [
        ({"git_dirty": True}, False, "files differed from it, but there is no patch of them"),
        ({"git_dirty": False}, False, "git saw no change"),
        ({"git_diff": "d" * 64, "git_diff_cut": True}, True, "it ran in /project itself, and nothing was copied"),
        ({"git_diff": "d" * 64, "git_diff_cut": True}, False, "the code copy has those files that were copied"),
    ],
)  # fmt: skip
def test_why_there_is_no_patch_says_only_what_is_known(origin: dict[str, Any], in_place: bool, said: str) -> None:
    """An untracked file may be linked, a tracked one may differ in a submodule, and in place nothing is copied."""
    job = builders.job(code=CodeCopy(in_place=in_place), origin=builders.origin(git_commit="c" * 40, **origin))
    with pytest.raises(NotFoundError) as error:
        read_diff(cast(Services, None), job)
    assert said in f"{error.value} {error.value.hint}"
