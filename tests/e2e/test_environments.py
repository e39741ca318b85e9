"""The environment of a program at the command line: variables from three places, threads, and the SDK under any Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from interpreters import bare_venv, others
from running import Tm, server

TELL = """
import json, os
names = ("LR", "FROM_FILE", "BOTH", "HF_HOME", "WANDB_MODE", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
print(json.dumps([os.environ.get(name) for name in names]))
"""
USES = """
import sys
from trainmaster import sdk
for step in range(sdk.attempt() * 10, sdk.attempt() * 10 + 3):
    sdk.report(step=step, loss=1 / step)
    with sdk.checkpoint(step) as directory:
        (directory / "state").write_text(str(step))
print(sdk.job(), "%d.%d" % sys.version_info[:2], sys.prefix, sdk.__file__)
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("environments")) as made:
        made.file("tell.py", TELL)
        made.file("uses.py", USES)
        yield made


def test_variables_reach_the_program_and_those_that_stay_are_named(tm: Tm, monkeypatch: pytest.MonkeyPatch) -> None:
    tm.file("job.env", "# ours\nFROM_FILE=a b\nBOTH=file\nHF_HOME\n")
    tm.environment |= {"HF_HOME": "/cache", "WANDB_MODE": "offline", "HTTPS_PROXY": "proxy-of-ann"}
    said = tm("run", "--name", "given", "--cpus", "2", "--env-file", "job.env", "--env", "BOTH=option", "--", "LR=0.1", "python3", "tell.py")
    assert (said.code, json.loads(said.out)) == (0, ["0.1", "a b", "option", "/cache", None, "2", "2"])
    assert [line for line in said.err.splitlines() if "stay" in line or "submitted" in line] == [
        "WANDB_MODE and HTTPS_PROXY stay here: --env NAME takes one along",
        "submitted given-1; Ctrl-C detaches and leaves it running",
    ]
    assert "proxy-of-ann" not in json.dumps(tm.json("show", "given-1"))
    own = tm("run", "--env", "WANDB_MODE", "--env", "HTTPS_PROXY", "--env", "HF_HOME", "--", "OMP_NUM_THREADS=3", "python3", "tell.py")
    assert ("stay" in own.err, json.loads(own.out)[4:]) == (False, ["offline", "3", None])
    tm.file("wrong.env", "A=1\nexport B=2\n")
    refused = tm("submit", "--env-file", "wrong.env", "--", "python3", "tell.py")
    assert refused.refusal == (
        2,
        "error: wrong.env:2: 'export B' is not a variable's name; did you mean 'B'?\n"
        "  it has one NAME=VALUE on a line, without `export` and without quotes\n",
    )


def test_a_spec_file_takes_a_file_of_variables(tm: Tm) -> None:
    tm.file("tell.yaml", "name: filed\ncommand: [python3, tell.py]\nenvironment: {variables: {LR: '1', BOTH: spec}}\n")
    tm.file("more.env", "BOTH=file\n")
    said = tm("run", "tell.yaml", "--env-file", "more.env")
    assert json.loads(said.out)[:3] == ["1", None, "file"]


@pytest.mark.parametrize("which", ["bare", "oldest"])
def test_a_job_in_an_environment_without_trainmaster_uses_the_sdk(tm: Tm, tmp_path: Path, which: str) -> None:
    if which == "oldest" and not others():
        pytest.skip("this machine has no other Python from 3.9 on")
    python = str(bare_venv(tmp_path / "venv")) if which == "bare" else next(iter(others().values()))
    said = tm("run", "--name", which, "--python", python, "--", "PYTHONPATH=/nowhere", "python3", "uses.py")
    assert said.code == 0, said
    words = said.out.split()
    assert (words[0], words[3].startswith(f"{tm.home.sdk}/")) == (f"{which}-1", True)
    shown = tm.show(f"{which}-1")
    assert (shown["step"], [one["step"] for one in shown["checkpoints"]]) == (12, [10, 11, 12])
