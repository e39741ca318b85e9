"""What the commands say of data that was removed, is being removed, or is not on this server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract_answers import DETAIL, KEPT, route
from contract_server import serving

from trainmaster.cli.app import run

ENDED = {**DETAIL, "state": "succeeded", "id": "digits-14", "system": {}}
Said = tuple[str, str]
Tm = Callable[..., Said]


@pytest.fixture
def tm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tm:
    """Run a command with the answers of some paths replaced. Returns output and other messages."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def invoke(answers: dict[str, Any], *arguments: str) -> Said:
        def answer(asked: Any) -> Any:
            path = asked.line.partition(" ")[2].partition("?")[0]
            return (200, answers[path]) if path in answers else route(asked)

        with serving(answer) as server:
            run(["--server", server.url, *arguments])
        told = capsys.readouterr()
        return told.out, told.err

    return invoke


def detail(*removed: str) -> dict[str, Any]:
    return {"/jobs/digits-14": {**ENDED, "removed": list(removed)}}


def test_removed_points_are_not_told_as_never_read(tm: Tm) -> None:
    none = {"/jobs/digits-14/points": {"points": [], "next": None}}
    assert tm({**detail("metrics"), **none}, "metrics", "digits-14")[1] == (
        "the points of digits-14's curves were removed to free space; the last values: tm show digits-14\n"
    )
    assert tm({**detail(), **none}, "metrics", "digits-14")[1] == (
        "no metric is recorded\n"
        "to see what is read from its output, and get a pattern that reads more: tm logs digits-14 --rank 0 | tm metrics try -\n"
    ), "they may have been lost since"


def test_the_lowest_and_highest_value_may_be_infinite(tm: Tm) -> None:
    values = [0.5, "-Infinity", "NaN", "Infinity"]
    page = {"points": [[step, value, 1.0, 1] for step, value in enumerate(values)], "next": None}
    table = tm({**detail(), "/jobs/digits-14/points": page}, "metrics", "digits-14")[0]
    assert table.splitlines()[1].split()[3:7] == ["0.5", "inf", "-inf", "inf"]


def test_removed_artifacts_and_logs_are_not_offered(tm: Tm) -> None:
    assert "Next: tm logs digits-14   tm get digits-14 out/a.png" in tm(detail(), "show", "digits-14")[0]
    assert "Next: tm get digits-14 out/a.png" in tm(detail("logs"), "show", "digits-14")[0]
    assert "Next:" not in tm(detail("logs", "artifacts"), "show", "digits-14")[0]
    listed = {"/jobs/digits-14/artifacts": {**KEPT, "removed": True}}
    assert tm(listed, "artifacts", "digits-14")[1] == "1 artifact, 10 B; removed to free space\n"


def test_an_attempt_without_output_is_told(tm: Tm) -> None:
    """The logs are not in a backup: after a restore nothing was printed, with exit code 0."""
    page = {"chunks": [], "cursor": "c", "state": "succeeded", "ended": True}
    asked = {**detail(), "/jobs/digits-14/logs": page}
    assert tm(asked, "logs", "digits-14") == ("", "the server has no output of digits-14, attempt 1\n")
    assert tm(asked, "logs", "digits-14", "--attempt", "1", "-n", "5")[1] == "the server has no output of digits-14, attempt 1\n"


def test_what_is_still_being_removed_is_told(tm: Tm) -> None:
    """"there is nothing to remove", while the disk refused to remove it."""
    row = {"id": "a-1", "ended_s": 1.0, "kinds": [], "bytes": {}, "kept_for": [], "going": ["work"]}
    told = "the removal of the work of a-1 was ordered before and has not ended\n"
    assert tm({"/jobs/remove": {"dry_run": True, "jobs": [row]}}, "rm", "a-1", "--yes")[1] == told
    new = {**row, "kinds": ["logs"], "bytes": {"logs": 100}, "going": []}
    assert tm({"/jobs/remove": {"dry_run": True, "jobs": [new]}}, "rm", "a-1", "--yes") == (
        "a-1  logs 100 B\n", "removing 100 B of 1 job\n"
    )  # fmt: skip


def test_what_may_have_been_stored_after_the_backup_is_not_told_as_of_strange_jobs(tm: Tm) -> None:
    """After a restore, the newest checkpoints of known jobs were called those of unknown jobs, with the command to remove them."""
    row = {"project": "(unknown)", "kind": "checkpoints", "blobs": 1, "bytes": 5, "orphaned_bytes": 0, "spare_bytes": 0}
    told = tm({"/storage": {"store": "/blobs", "use": [row]}}, "storage")[1].splitlines()
    assert told[-1] == (
        "5 B are of jobs that are not on record, or perhaps stored after the backup that was restored; "
        "to remove them: tm storage gc --unknown-jobs"
    )
