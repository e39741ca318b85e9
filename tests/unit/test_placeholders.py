"""Placeholders in commands, and whether a program reads the parameters that are set."""

import os
import subprocess
from pathlib import Path

import pytest

from trainmaster.client.checks.param_readers import check_set, reads_params
from trainmaster.client.code_copy.gather import gather
from trainmaster.errors import UsageError
from trainmaster.model.options.placeholders import filled, names_in, unread, values_of
from trainmaster.model.spec import JobSpec, Origin, Role
from trainmaster.spec.document import from_mapping
from trainmaster.spec.shorthand import from_options
from trainmaster.testing.builders import spec

VALUES = {"lr": "0.5", "text": "it's \"a\" $HOME `b` \\", "index": "7"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python t.py --lr {lr}", "python t.py --lr 0.5"),
        ("python t.py --lr={lr} -o out/{index}.pt", "python t.py --lr=0.5 -o out/7.pt"),
        ("echo {{lr}} {other} {{other}}", "echo {lr} {other} {{other}}"),
        ("echo ${lr} ${{lr}}", "echo ${lr} ${{lr}}"),  # the shell's own
        ("awk '{print $1}' f | jq '{lr: .lr}'", "awk '{print $1}' f | jq '{lr: .lr}'"),
        ('echo \'{"lr": {lr}, "x": {"y": 1}}\'', 'echo \'{"lr": 0.5, "x": {"y": 1}}\''),
        ("echo { lr } {} {lr", "echo { lr } {} {lr"),
    ],
)
def test_a_line_for_bash(line: str, expected: str) -> None:
    assert filled(line, VALUES) == expected


@pytest.mark.parametrize("line", ["printf %s {text}", 'printf %s "{text}"', "printf %s '{text}'", "printf %s a\\'{text}", "printf %s \"it's {text}\""])
def test_a_value_arrives_whole_wherever_it_is_quoted(line: str) -> None:
    said = subprocess.run(["bash", "-c", str(filled(line, VALUES))], capture_output=True, text=True, check=True).stdout
    assert said == line[10:].strip("'\"").replace("a\\'", "a'").replace("{text}", VALUES["text"])


def test_a_quote_in_a_comment_opens_nothing() -> None:
    line = "printf %s $# # don't {text}\nprintf '%s' '#'{text} # {lr} isn't"
    done = subprocess.run(["bash", "-c", str(filled(line, VALUES))], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0#" + VALUES["text"], "")


def test_an_argument_of_a_list_is_not_quoted() -> None:
    assert filled(("python", "-c", "print('{text}', {{lr}})"), VALUES) == ("python", "-c", f"print('{VALUES['text']}', {{lr}})")


def test_the_values_are_as_in_json_and_an_own_index_comes_first() -> None:
    found = values_of(spec(params={"lr": 1e-4, "on": True, "no": None, "name": "a b"}, index=3))
    assert found == {"index": "3", "lr": "0.0001", "on": "true", "no": "null", "name": "a b"}
    assert values_of(spec(params={"index": 9}, index=3)) == {"index": "9"}
    assert filled("{lr}", values_of(spec())) == "{lr}"


def test_what_a_command_reads() -> None:
    assert names_in(("a", "{lr} {{x}} ${y} {z}")) == {"lr", "z"}
    known = Origin(reads_params=False)
    params = {"lr": 1, "seed": 2, "eval": 3}
    beside = {"watch": Role("eval.sh {eval}")}
    assert unread(spec("t.py {lr}", params=params, roles=beside), known) == ("seed",)
    assert unread(spec("t.py {lr}", params=params), Origin()) == ()
    assert unread(spec("echo $TRAINMASTER_PARAMS", params=params), known) == ()
    assert unread(JobSpec((), python="a:b", params=params), known) == ()


def program(directory: Path, text: str, *more: str) -> Path:
    (directory / "t.py").write_text(text)
    for name in more:
        (directory / name).write_text("from trainmaster import sdk\n")
    return directory


@pytest.mark.parametrize(
    ("text", "more", "command", "expected"),
    [
        ("print(1)", (), ["python3", "t.py"], False),
        ("print(1)", (), "python3 t.py | tee log", False),
        ("print(1)", (), ["python3", "-m", "t"], False),
        ("print(1)", (), ["python3", "-m", "installed"], None),
        ("import os; os.environ['TRAINMASTER_PARAMS']", (), ["python3", "t.py"], True),
        ("import other", ("other.py",), ["python3", "t.py"], True),
        ("print(1)", ("README.md",), ["python3", "t.py"], False),  # only mentioned
        ("print(1)", (), "jq . <<< $TRAINMASTER_PARAMS", True),
    ],
)
def test_whether_a_program_reads_parameters(
    tmp_path: Path, text: str, more: tuple[str, ...], command: object, expected: bool | None
) -> None:
    gathered = gather(program(tmp_path, text, *more))
    assert reads_params({"command": command, "params": {"lr": 1}}, gathered) is expected


def test_in_place_or_with_code_elsewhere_it_is_not_known(tmp_path: Path) -> None:
    program(tmp_path, "print(1)")
    os.symlink("../elsewhere.py", tmp_path / "linked.py")  # which is not part of the copy
    assert reads_params({"command": "python3 t.py"}, None) is None
    assert reads_params({"command": "python3 linked.py"}, gather(tmp_path)) is None
    assert reads_params({"command": "python3 t.py"}, gather(tmp_path)) is False
    os.symlink("/usr", tmp_path / "outside")
    assert reads_params({"command": "python3 t.py"}, gather(tmp_path)) is None


def test_a_parameter_that_nothing_reads_is_refused_or_noted() -> None:
    spec = {"command": ["python3", "t.py", "--lr", "{lr}"], "roles": {"eval": "eval.sh {at}"}}
    assert check_set(spec, ("lr", "at"), False) == []
    assert check_set(spec, ("seed",), True) == []
    note = "the command has no {seed}; if the program does not read TRAINMASTER_PARAMS, seed changes nothing"
    assert check_set(spec, ("seed",), None) == [note]
    with pytest.raises(UsageError) as refused:
        check_set(spec, ("lr", "seed"), False)
    assert (refused.value.message, refused.value.hint) == (
        "nothing would read the parameter 'seed'",
        "write {seed} where the command takes it: tm run --set seed=… -- python train.py --seed {seed}   "
        "only to record it: --add-param seed=…",
    )


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("import trainmaster", True), ("from trainmaster import sdk", True), ("json.loads(os.environ['TRAINMASTER_PARAMS'])", True),
        ("os.environ['TRAINMASTER_' + name]", True), ("open(os.environ['TRAINMASTER_DATA_TRAIN'])", False), ("trainmasters = 3", False),
    ],
)  # fmt: skip
def test_only_what_reads_parameters_is_taken_for_that(tmp_path: Path, line: str, reads: bool) -> None:
    (tmp_path / "t.py").write_text(line)
    assert reads_params({"command": "python3 t.py"}, gather(tmp_path)) is reads


def test_a_parameter_without_a_value_is_an_empty_text() -> None:
    assert from_mapping(from_options({"params": ["none=", "null=null"]}, ["true"])).params == {"none": "", "null": None}
