"""Nothing lost, nothing doubled: the control plane is killed at random instants and at every named failpoint."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster import daemons
from trainmaster.compose import replay_report
from trainmaster.home import Home
from trainmaster.testing.survival import Survival
from trainmaster.wire.failpoint import POINTS

FAULTS = Path(__file__).with_name("faults")
CHECKPOINTING = """for i in 1 2 3 4; do echo "{\\"step\\": $i}" | tee ckpt.part; mv ckpt.part ckpt.json; sleep 0.7; done"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An empty home whose server is gone afterwards."""
    home = Home(tmp_path / "home")
    yield home
    daemons.stop(home)


@pytest.mark.timeout(300)  # each of the twenty is followed by a start, on a machine that may be busy
def test_twenty_random_instants(home: Home) -> None:
    trial = Survival(home, jobs=50)
    assert trial.run(20, random.Random(20)) == []
    daemons.stop(home)
    assert replay_report(home) == []


@pytest.mark.parametrize("point", POINTS)
def test_every_failpoint(home: Home, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home.root.mkdir()
    once = home.root / "died"
    monkeypatch.setenv("TRAINMASTER_FAILPOINT", f"{point}:2:{once}")
    checkpointing = point.startswith("checkpoint")
    stopping = point.startswith("engine.stop")
    trial = Survival(home, jobs=4, options=daemons.Options(failpoints=True))
    if checkpointing:
        trial.body, trial.spec = CHECKPOINTING, {"checkpoint": {"path": "ckpt.json"}}
    if stopping:
        trial.cancelled = 2
    assert trial.run(0, random.Random(0), timeout_s=60.0) == []
    assert once.exists(), f"{point} was never passed twice: the trial shows nothing"


@pytest.mark.parametrize(
    ("fault", "seen"), [("acknowledged_before_commit", "was acknowledged and is lost"), ("submit_without_key", "overlap")]
)
def test_a_planted_fault_is_seen(home: Home, fault: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witnesses are worth something: with the law broken on purpose, they say so."""
    home.root.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAULTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PLANTED_FAULT", fault)
    monkeypatch.setenv("TRAINMASTER_FAILPOINT", f"inbox.commit.before:2:{home.root / 'died'}")
    trial = Survival(home, jobs=4, body="sleep 1", options=daemons.Options(failpoints=True))
    problems = trial.run(0, random.Random(0), timeout_s=12.0)
    assert any(seen in problem for problem in problems), problems
