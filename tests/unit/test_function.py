"""Runs a function by name with its parameters, or fails with one clear last line."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.agent.launch import function
from trainmaster.recovery.classify import raised

MODULE = """
import os
VALUE = 3
def train(lr, batch=4, *, steps=2):
    print("trained", lr, batch, steps)
def anything(**params):
    print("anything", params)
async def later(lr):
    print("later", lr)
def broken():
    import nothing_of_that_name
def positional(a, /):
    pass
"""


@pytest.fixture
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A work directory with a package."""
    (tmp_path / "tm_pkg").mkdir()
    (tmp_path / "tm_pkg" / "steps.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path), list(sys.argv)
    yield
    sys.path[:], sys.argv[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "tm_pkg"]:
        del sys.modules[name]


def run(monkeypatch: pytest.MonkeyPatch, target: str, params: str) -> None:
    monkeypatch.setenv("TRAINMASTER_PARAMS", params)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    function.main(["function.py", f"tm_pkg.{target}"])


@pytest.mark.usefixtures("_project")
@pytest.mark.parametrize(
    ("target", "params", "printed"),
    [
        ("steps:train", '{"lr": 0.1}', "trained 0.1 4 2\n"),
        ("steps:train", '{"lr": 0.1, "steps": 5, "batch": null}', "trained 0.1 None 5\n"),
        ("steps:anything", '{"lr": 0.1, "not an identifier": "x"}', "anything {'lr': 0.1, 'not an identifier': 'x'}\n"),
        ("steps:later", '{"lr": 1}', "later 1\n"),
    ],
)
def test_a_function_gets_the_parameters_by_name(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, target: str, params: str, printed: str
) -> None:
    run(monkeypatch, target, params)
    assert capfd.readouterr().out == printed


@pytest.mark.usefixtures("_project")
@pytest.mark.parametrize(
    ("target", "params", "last"),
    [
        ("steps:train", "{}", "ParameterError: tm_pkg.steps:train needs 'lr', which `params` does not give; "
        "add it to the spec, or --param lr=…"),
        ("steps:train", '{"lr": 1, "bath": 2}', "ParameterError: tm_pkg.steps:train takes no parameter 'bath'; "
        "did you mean 'batch'?"),
        ("steps:train", '{"lr": 1, "zzz": 2}', "ParameterError: tm_pkg.steps:train takes no parameter 'zzz'; "
        "it takes lr, batch, steps"),
        ("steps:positional", "{}", "ParameterError: tm_pkg.steps:positional takes 'a' by position alone; "
        "parameters are given by name"),
        ("steps:trian", "{}", "FunctionError: tm_pkg.steps has no function 'trian'; did you mean 'train'?"),
        ("steps:VALUE", "{}", "FunctionError: tm_pkg.steps:VALUE is of the type int, not a function"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_last_line(monkeypatch: pytest.MonkeyPatch, target: str, params: str, last: str) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, target, params)
    assert caught.value.code == last
    assert raised((last,)) is not None, "the line speaks for itself"


@pytest.mark.usefixtures("_project")
def test_a_missing_module_is_told_from_one_that_the_function_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"ModuleNotFoundError: No module named 'tm_pkg.stps' in "):
        run(monkeypatch, "stps:train", "{}")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        run(monkeypatch, "steps:broken", "{}")


def test_it_runs_by_its_path_under_a_python_that_knows_nothing_of_us(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys\ndef go(): print(sys.argv, sys.path[0], sys.modules.get('trainmaster'))\n")
    argv = [sys.executable, "-I", function.__file__, "plain:go"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (f"['plain:go'] {tmp_path} None\n", "")
