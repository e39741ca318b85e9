"""Options that describe a job, as they are typed: what is said of those that were hardly meant so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.cli.app import run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """One command line in this process, in a directory `code` with a script, and without a server of its own."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRAINMASTER_SERVER", raising=False)
    code = tmp_path / "work" / "code"
    code.mkdir(parents=True)
    (code / "train.py").touch()
    monkeypatch.chdir(code)

    def call(*arguments: str) -> tuple[int, str, str]:
        returned = run(list(arguments))
        told = capfd.readouterr()
        return returned, told.out, told.err

    return call


@pytest.mark.parametrize(
    ("command", "line"),
    [(("python3", "train.py", "--lr", "1e-3"), "python3 train.py --lr 1e-3"), (("python3 train.py | tee log",), "python3 train.py | tee log")],
)  # fmt: skip
def test_a_script_that_is_not_in_the_work_directory_is_told(invoke: Run, command: tuple[str, ...], line: str) -> None:
    top = Path.cwd().parent
    told = f"the command starts in {top}, and train.py is in code: give it as code/train.py, or as 'cd code && {line}'"
    code, _, said = invoke("plan", "--workdir", "..", "--", *command)
    assert (code, told in said.splitlines()) == (0, True), said


@pytest.mark.parametrize(
    "words",
    [
        ("--", "python3", "train.py"), ("--workdir", ".", "--", "python3", "train.py"), ("--workdir", "..", "--", "cd code && python3 train.py"),
        ("--workdir", "..", "--", "python3", "code/train.py"), ("--workdir", "..", "--", "python3", "other.py"),
        ("--workdir", "..", "--", "true"), ("--workdir", "..", "--", "python3", "x" * 300 + ".py"),
    ],
)  # fmt: skip
def test_a_command_that_is_right_or_not_known_to_be_wrong_has_no_such_note(invoke: Run, words: tuple[str, ...]) -> None:
    code, _, said = invoke("plan", *words)
    assert (code, "the command starts in" in said) == (0, False), said


def test_a_plan_says_what_the_roles_ask_for(invoke: Run) -> None:
    roles = "{judge: {command: python judge.py, resources: {cpus: 0.5, memory: 1GiB}}, loader: python load.py}"
    Path("job.yaml").write_text(f"command: python train.py\nresources: {{cpus: 0.5}}\nroles: {roles}\n")
    code, told, _ = invoke("plan", "job.yaml")
    at = told.splitlines().index("asks for nodes 1, gpus 0, cpus 0.5")
    assert (code, told.splitlines()[at + 1 : at + 3]) == (0, [
        "roles    judge asks for gpus 0, cpus 0.5, memory 1GiB, on the first node",
        "         loader asks for gpus 0, cpus 1.0, on the first node",
    ])  # fmt: skip
