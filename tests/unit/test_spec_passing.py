"""Variables that a spec only names get their values from the submitting shell, never from the server's environment."""

import pytest

from trainmaster.errors import SpecError, UsageError
from trainmaster.spec.document import from_mapping, load_bytes
from trainmaster.spec.schema import schema
from trainmaster.spec.shorthand import from_options

SHELL = {"HF_TOKEN": "t-1", "EMPTY": "", "ODD": "\udcff"}


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ({"env": ["A=1", "HF_TOKEN", "EMPTY"]}, {"A": "1", "HF_TOKEN": "t-1", "EMPTY": ""}),
        ({"env": "HF_TOKEN"}, {"HF_TOKEN": "t-1"}),
        ({"environment": {"variables": ["HF_TOKEN"]}}, {"HF_TOKEN": "t-1"}),
        ({"env": {"A": "HF_TOKEN"}}, {"A": "HF_TOKEN"}),
    ],
)
def test_a_variable_that_is_only_named_has_its_value_in_the_submitting_shell(options, variables) -> None:
    assert from_mapping(from_options(options, ["x"], SHELL)).environment.variables == variables


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": ["OTHER"]}, "env: the variable 'OTHER' is not set here, or not exported; export it, or give it a value"),
        ({"env": ["ODD"]}, "env: the variable 'ODD' is not valid UTF-8 here; give it a value"),
        ({"env": [""]}, "env: expected NAME=VALUE, got ''"),
        (
            {"environment": {"variables": ["A=t-1"]}},
            "env: 'A' is in a list of names but has a value; give a mapping, as {NAME: VALUE}",
        ),
    ],
)
def test_a_variable_that_cannot_be_passed_on_is_refused(options, message) -> None:
    with pytest.raises(UsageError) as caught:
        from_options(options, ["x"], SHELL)
    assert caught.value.message == message
    assert "t-1" not in f"{caught.value.hint}"


def test_a_file_may_name_variables_to_pass_on() -> None:
    text = b"command: x\nenvironment:\n  variables: [HF_TOKEN, EMPTY]\n"
    assert load_bytes(text, "train.yaml", SHELL).environment.variables == {"HF_TOKEN": "t-1", "EMPTY": ""}
    wrong = b"command: x\nnodes: 1\nenvironment:\n  variables:\n    - HF_TOKEN\n    - OTHER\n    - A=t-1\n    - {B: t-1}\n"
    with pytest.raises(SpecError) as caught:
        load_bytes(wrong, "train.yaml", SHELL)
    assert caught.value.message.splitlines()[1:] == [
        "train.yaml:6:7: environment.variables[1]: the variable 'OTHER' is not set here, or not exported; export it, or give it a value",
        "train.yaml:7:7: environment.variables[2]: 'A' is in a list of names but has a value; give a mapping, as {NAME: VALUE}",
        "train.yaml:8:7: environment.variables[3]: expected a variable's name, got a mapping",
    ]
    assert "t-1" not in str(caught.value.details)


def test_a_server_passes_nothing_of_its_own_environment_on(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "of the server")
    with pytest.raises(SpecError) as caught:
        from_mapping({"command": "x", "environment": {"variables": ["HF_TOKEN"]}})
    assert caught.value.message == (
        "environment.variables: names alone take their values from the submitting shell, through tm or trainmaster.submit; "
        "here: NAME: VALUE"
    )


def test_editors_know_both_forms() -> None:
    variables = schema()["$defs"]["EnvironmentFields"]["properties"]["variables"]
    assert variables["type"] == ["object", "array"]
    assert variables["items"] == {"type": "string"}
