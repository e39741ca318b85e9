"""The path that a failed program did not find in its copy, although it exists where it was submitted."""

from pathlib import Path

import pytest
from launches import launch, write

from trainmaster.agent.supervise.outside_paths import outside
from trainmaster.model.job import Outcome, RankEnd
from trainmaster.recovery.classify import _of_end

ERROR = "FileNotFoundError: [Errno 2] No such file or directory: "


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["Traceback", f"{ERROR}'../data/train.csv'"], "../data"),
        ([f"{ERROR}'{{work}}/../data/train.csv'"], "../data"),
        ([f"{ERROR}'{{root}}/data/train.csv'", "Exit"], "../data"),
        (["cat: ../../shared/list.txt: No such file or directory"], "../../shared"),
        ([f"{ERROR}'models/base.pt'"], "models/base.pt"),
        ([f"{ERROR}'../nowhere/train.csv'"], None),
        ([f"{ERROR}'here.txt'", f"{ERROR}'./sub/here.txt'"], None),
        (["ValueError: ../data/train.csv is broken"], None),
        ([f"{ERROR}'/etc/nowhere'", f"{ERROR}'\0/x'", "not found: " + "../" * 400 + "data"], None),
    ],
)
def test_which_path_it_is(tmp_path: Path, lines: list[str], found: str | None) -> None:
    source = tmp_path / "home" / "project" / "code"
    write(source.parent / "data" / "train.csv", "1")
    write(source.parent.parent / "shared" / "list.txt", "1")
    write(source / "models" / "base.pt", "1")
    write(source / "sub" / "here.txt", "1")
    orders = launch(tmp_path / "jobs", code={"tree": "", "objects": "", "source": str(source)})
    write(Path(orders["work"]) / "sub" / "here.txt", "1")
    placed = [line.format(work=orders["work"], root=tmp_path / "jobs") for line in lines]
    assert outside(orders, placed) == found
    assert outside({**orders, "code": None}, placed) is None


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (None, "rank 0 exited with code 1"),
        (
            "../../shared",
            "rank 0 exited with code 1; ../../shared exists where you submitted from; use --in-place, or --workdir ../.. "
            "(the command then starts there)",
        ),
        (
            "models/base.pt",
            "rank 0 exited with code 1; models/base.pt exists where you submitted from, but did not go along: "
            "tm plan, with the same arguments, says why",
        ),
    ],
)
def test_what_the_failure_says(path: str | None, told: str) -> None:
    assert _of_end(RankEnd(0, exit_code=1, outside=path), Outcome()).message == told


def test_a_program_that_asks_for_a_terminal_is_told_how_it_gets_one() -> None:
    """The progress bar that many classifiers have copied (pytorch-cifar) asks `stty` for the width, and fails without a terminal."""
    lines = ("stty: 'standard input': Inappropriate ioctl for device", "ValueError: not enough values to unpack (expected 2, got 0)")
    told = _of_end(RankEnd(0, exit_code=1, last_lines=lines), Outcome()).message
    assert told.startswith("rank 0 exited with code 1: ValueError: not enough values to unpack (expected 2, got 0)")
    assert told.endswith("; it asks for a terminal, which a job has not: this gives it one: script -qec 'COMMAND' /dev/null")
