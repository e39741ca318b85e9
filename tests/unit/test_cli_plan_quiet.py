"""`tm plan -q` of a cluster configuration prints the plan and no word on how to apply it."""

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
