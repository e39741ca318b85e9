"""`tm plan`: what it says of a cluster configuration and of an empty directory."""

import json
from pathlib import Path

import pytest
from contract_server import serving

from trainmaster.cli.app import run

ANSWER = {"changes": ["pools.fast.nodes: node0 (new)"], "words": [], "waiting": 0, "jobs": []}


@pytest.mark.parametrize("quiet", [True, False])
def test_a_quiet_plan_has_no_notes(quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("pools:\n  fast: {nodes: [node0]}\n")
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRAINMASTER_TOKEN", "t")
    with serving(lambda request: (200, ANSWER)) as server:
        assert run(["plan", str(file), "--server", server.url, *(["-q"] if quiet else [])]) == 0
    told = capfd.readouterr()
    assert told.out == "pools.fast.nodes: node0 (new)\nno job is waiting\n"
    assert ("nothing was applied" in told.err) is not quiet


def test_where_a_job_of_an_empty_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It was said to run in the directory itself, as with --in-place."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    assert run(["plan", "--", "python", "-c", "1"]) == 0
    assert f"code     none: {empty} is empty; it runs in a directory of its own\n" in capfd.readouterr().out
    assert run(["plan", "--in-place", "--", "python", "-c", "1"]) == 0
    told = capfd.readouterr().out
    assert f"code     none copied: it runs in {empty}\n" in told
    assert "; is given no checkpoint when it is restarted (no checkpoint.path)\n" in told  # it may find files of its own


def test_a_plan_without_a_server_says_what_the_spec_alone_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    assert run(["plan", "--checkpoint", "out/*.pt", "--", "bash", "-c", "./train $TRAINMASTER_RESUME_ARGUMENTS"]) == 0
    assert "\nnote     the command uses TRAINMASTER_RESUME_ARGUMENTS, which is always empty" in capfd.readouterr().out


def test_an_array_is_planned_as_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "--array", "0-30:10%2", "--", "echo {index}"]) == 0
    assert "array    4 jobs such as this one, at most 2 at once" in capsys.readouterr().out.splitlines()
    assert run(["plan", "--json", "--array", "1,3", "--", "true"]) == 0
    assert json.loads(capsys.readouterr().out)["array"] == {"indices": [1, 3], "at_most": 0}
