"""Variables that a spec only names get their values from the submitting shell, never from the server's environment."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.client.origin import staying, wanted
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


def meant(options: dict[str, object], command: object) -> tuple[object, dict[str, str]]:
    spec = from_mapping(from_options(options, command, SHELL))  # type: ignore[arg-type]
    return spec.command, spec.environment.variables


@pytest.mark.parametrize(
    ("words", "command", "variables"),
    [
        (["LR=0.1", "python3", "t.py", "--tag=a"], ("python3", "t.py", "--tag=a"), {"LR": "0.1"}),
        (["A=1", "B=x=y z", "A=", "./run"], ("./run",), {"A": "", "B": "x=y z"}),
        (["A=1", "python3 t.py | tee out"], "python3 t.py | tee out", {"A": "1"}),
        (["./a=b", "C=1"], ("./a=b", "C=1"), {}),
        (["1A=2", "python3"], ("1A=2", "python3"), {}),
        ("LR=0.1 python3 t.py", "LR=0.1 python3 t.py", {}),
        (["LR=0.1 python3 t.py"], "LR=0.1 python3 t.py", {}),
    ],
)
def test_variables_before_a_command_are_read_as_in_a_shell(words, command, variables) -> None:
    assert meant({}, words) == (command, variables)


def test_a_variable_before_the_command_takes_precedence_over_options_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A=file\nB=file\nC=file\n")
    (tmp_path / "b.env").write_text("C=later\n")
    options = {"env": ["A=option", "B=option"], "env_file": [str(tmp_path / "a.env"), tmp_path / "b.env"]}
    assert meant(options, ["A=word", "true"]) == (("true",), {"A": "word", "B": "option", "C": "later"})
    assert meant({"env_file": str(tmp_path / "a.env"), "environment": {"variables": ["HF_TOKEN"]}}, "true")[1] == {
        "A": "file", "B": "file", "C": "file", "HF_TOKEN": "t-1",
    }  # fmt: skip


@pytest.mark.parametrize("words", [["LR=s3cret"], "LR=s3cret", ["LR=s3cret", "B=2"]])
def test_variables_without_a_command_are_refused(words) -> None:
    with pytest.raises(UsageError) as caught:
        from_options({}, words)
    named = "LR, B" if len(words) == 2 else "LR"
    assert (caught.value.message, caught.value.hint) == (f"there is no command after {named}", "LR=VALUE python train.py")


def test_a_file_of_variables_is_read_as_docker_reads_it(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf# a comment\n\nA=1\r\n  B=x=y # z \n"
    data += b"QUOTED=\"a b\"\nEMPTY_ONE=\nHF_TOKEN\n\t# more\nLAST=$A"
    (tmp_path / "job.env").write_bytes(data)
    assert meant({"env_file": str(tmp_path / "job.env")}, "true")[1] == {
        "A": "1", "B": "x=y # z ", "QUOTED": '"a b"', "EMPTY_ONE": "", "HF_TOKEN": "t-1", "LAST": "$A",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"A=1\nexport B=s3cret\n", "2: 'export B' is not a variable's name; did you mean 'B'?"),
        (b"\n\nB =s3cret", "3: 'B ' is not a variable's name; did you mean 'B'?"),
        (b"=s3cret", "1: '' is not a variable's name"),
        (b"some words s3cret", "1: this line is not a variable's name"),
        (b"OTHER", "1: the variable 'OTHER' is not set here, or not exported; export it, or give it a value"),
        (b"A=1\nB=\xff", "2: this line is not valid UTF-8"),
        (b"B=a\0b", "1: the value of B contains a null byte"),
    ],
)
def test_a_wrong_line_of_a_file_of_variables_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "job.env").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        from_options({"env_file": [str(tmp_path / "job.env")]}, "true", SHELL)
    assert caught.value.message == f"{tmp_path / 'job.env'}:{message}"
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"A=1", b"A", b"HF_TOKEN", b"\r", b"# x"]), max_size=5))
def test_any_file_of_variables_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, rows: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_bytes(b"\n".join(rows))
    with suppress(UsageError):
        assert from_mapping(from_options({"env_file": str(path)}, "true", SHELL)).command == "true"


def test_a_file_of_variables_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.env").write_bytes(b"#" * (1024 * 1024 + 1))
    for name, why in (("none.env", "cannot be read: No such file or directory"), ("large.env", "is larger than 1 MiB")):
        with pytest.raises(UsageError) as caught:
            from_options({"env_file": str(tmp_path / name)}, "true", SHELL)
        assert caught.value.message == f"the file of variables {tmp_path / name} {why}"
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        from_options({"env_file": str(tmp_path)}, "true", SHELL)


def test_the_devices_of_a_job_are_asked_for_and_not_set() -> None:
    with pytest.raises(SpecError) as caught:
        meant({}, ["CUDA_VISIBLE_DEVICES=0", "python3", "t.py"])
    assert "set by Trainmaster for each rank; say how many GPUs the job needs with gpus" in caught.value.message


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HOME": "/h", "PATH": "/bin", "LR": "0.1", "HF_HOME": ""}, []),
        ({"HF_HOME": "/c"}, ["HF_HOME stays here: --env HF_HOME takes it along"]),
        ({"WANDB_API_KEY": "t-1", "HF_HOME": "/c"}, ["HF_HOME and WANDB_API_KEY stay here: --env NAME takes one along"]),
        (
            {"HF_TOKEN": "t-1", "https_proxy": "p", "HF_HOME": "/c"},
            ["HF_HOME, HF_TOKEN and https_proxy stay here: --env NAME takes one along"],
        ),
        (
            {"HF_TOKEN": "t-1", "https_proxy": "p", "HF_HOME": "/c", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "4"},
            ["HF_HOME, HF_TOKEN, WANDB_MODE and 2 more stay here: --env NAME takes one along"],
        ),
        (
            {"CUDA_HOME": "/c", "NCCL_DEBUG": "INFO", "OMPI_MCA_plm": "isolated", "OMPI_MCA_btl": "tcp"},
            ["OMPI_MCA_btl, OMPI_MCA_plm, CUDA_HOME and 1 more stay here: --env NAME takes one along"],
        ),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["CUDA_VISIBLE_DEVICES stays here: the job sees the GPUs that it asks for (--gpus)"]),
    ],
)
def test_well_known_variables_that_stay_are_named_without_their_values(environment, told) -> None:
    assert staying({"command": "x"}, environment) == told
    taken = {"command": "x", "environment": {"variables": dict.fromkeys(environment, "v")}}
    assert staying(taken, environment) == [line for line in told if "CUDA_VISIBLE" in line]


def test_a_failure_that_names_a_variable_of_this_shell_says_how_it_goes_along() -> None:
    """nnU-Net: three variables that no list of well-known ones has."""
    environment = {
        "nnUNet_raw": "/data/raw",
        "nnUNet_results": "/data/out",
        "PATH": "/bin",
        "HOME": "/root",
        "EMPTY": "",
        "at": "x",
    }
    environment |= {"CUDA_VISIBLE_DEVICES": "0", "MASTER_ADDR": "x", "TRAINMASTER_HOME": "/h"}
    lines = ["  File at /bin", "CUDA_VISIBLE_DEVICES MASTER_ADDR TRAINMASTER_HOME", "KeyError: 'nnUNet_raw'", "nnUNet_preprocessed, PATH, HOME and EMPTY are not defined"]
    spec = {"command": "x", "environment": {}}
    assert wanted(spec, lines, environment) == "nnUNet_raw is set in this shell, and the job did not get it: --env nnUNet_raw"
    both = (
        "nnUNet_raw, nnUNet_results are set in this shell, and the job did not get them: --env nnUNet_raw --env nnUNet_results"
    )
    assert wanted(spec, [*lines, "nnUNet_results"], environment) == both
    assert wanted({"environment": {"variables": {"nnUNet_raw": "/x"}}}, lines, environment) == ""
