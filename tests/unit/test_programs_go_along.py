"""A submit whose own program would be left out is refused: the job would only find that there is no such file."""

from pathlib import Path

import pytest
from code_trees import own_cache, repository, write

from trainmaster.client.checks.outside_paths import outside
from trainmaster.client.checks.programs import check_programs
from trainmaster.client.code_copy.gather import gather
from trainmaster.errors import UsageError

__all__ = ["own_cache"]  # a fixture that holds for every test here


def test_a_pattern_that_matches_the_program_is_refused(tmp_path: Path) -> None:
    """`--checkpoint 'dmm.*'` kept dmm.py away."""
    root = write(tmp_path / "p", dict.fromkeys(("dmm.py", "dmm.pt", "run.sh", "out/eval.py"), ""))
    left_out = gather(root, own=["dmm.*", "out/*.pt"]).left_out
    for command in ("python dmm.py --epochs 3", ["python3", "./dmm.py"], "bash run.sh && python -m dmm"):
        with pytest.raises(UsageError, match=r"the command names dmm\.py, which would not go along: the job writes 'dmm\.\*'") as error:
            check_programs({"command": command}, left_out)
        assert "'model-*.pt'" in error.value.hint
    check_programs({"command": "python out/eval.py"}, left_out)  # no git: what lies beside is copied
    left_out = gather(write(repository(tmp_path / "r", {"run.sh": ""}), {"out/eval.py": ""}), own=["out/*.pt"]).left_out
    with pytest.raises(UsageError, match=r"out/eval\.py, which would not go along: beside what the job writes, 'out/\*\.pt'"):
        check_programs({"command": "bash run.sh", "roles": {"eval": {"command": "python out/eval.py"}}}, left_out)


def test_what_the_job_writes_and_programs_that_go_along_are_no_reason(tmp_path: Path) -> None:
    """A checkpoint that the command names is not its program, and what git tracks is copied."""
    root = repository(tmp_path / "r", {"train.py": "", "exp/train.py": ""})
    write(root, {"exp/last.pt": "", "exp/notes.txt": "", "exp/old.py": "", ".env": ""})
    left_out = gather(root, own=["exp/*.pt"]).left_out
    assert {one.path for one in left_out} == {"exp/last.pt", "exp/notes.txt", "exp/old.py", ".env"}
    commands = ("python exp/train.py --resume exp/last.pt", ["bash", "-c", "python train.py; cat exp/notes.txt"], 7, None)
    for command in commands:
        check_programs({"command": command, "roles": "none"}, left_out)


@pytest.mark.parametrize("command", ["python t.py --out out", "python t.py --resume out/old.pt", "t.py --out out/", ["./marian", "--model", "out/a.npz"]])
def test_a_word_that_is_no_module_is_not_taken_for_one(tmp_path: Path, command: object) -> None:
    """`--out out` was said to name out/__main__.py."""
    root = write(tmp_path / "p", {"t.py": "", "out/old.pt": ""})
    left_out = gather(root, own=["out"]).left_out
    check_programs({"command": command}, left_out)
    with pytest.raises(UsageError, match=r"the command names out/tool\.py"):
        check_programs({"command": "python -m out.tool"}, left_out)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python train.py --root ../data", "../data lies"),
        (["python", "train.py", "--root=../data", "--out", "../data/x"], "../data lies"),  # the latter is not there
        ("python train.py ../data ../data/a.csv", "../data, ../data/a.csv lie"),
        ("python train.py --root ../work/own --out ../nothing ./x ..", None),  # a path of its own, and what is not there
        ("cat '../data", None),  # an open quote: the shell says so
        ("python ../\0 " + "../" + "x" * 5_000, None),
    ],
)
def test_what_a_command_names_beside_the_directory_is_told(tmp_path: Path, command: str | list[str], named: str | None) -> None:
    """Torchvision loads what it does not find, and its failure does not say that a path is missing."""
    (tmp_path / "work" / "own").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1")
    told = outside({"command": command}, tmp_path / "work")
    assert [note.partition(" beside the directory")[0] for note in told] == ([named] if named else [])
