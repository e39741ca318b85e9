"""Options that describe a job, as they are typed: what is said of those that were hardly meant so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.cli.app import run
from trainmaster.errors import UsageError
from trainmaster.spec.shorthand import from_options

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


@pytest.mark.parametrize(
    ("option", "text", "form", "hint"),
    [
        ("data", "../data/train.csv", "NAME=PATH", "--data train=../data/train.csv"),
        ("data", "=/imagenet/", "NAME=PATH", "--data imagenet=/imagenet/"),
        ("data", "/data/2024-01.csv", "NAME=PATH", "--data NAME=/data/2024-01.csv"),
        ("data", "", "NAME=PATH", "--data NAME=PATH"),
        ("params", "lr", "NAME=VALUE", "--param lr=…"),
        ("tags", "=ada", "NAME=VALUE", "--tag NAME=VALUE"),
    ],
)
def test_a_pair_without_its_name_or_value_is_told_how_it_is_written(option: str, text: str, form: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_options({option: [text]}, ["x"])
    assert (caught.value.message, caught.value.hint) == (f"{option}: expected {form}, got {text!r}", hint)
