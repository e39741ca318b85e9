"""Nothing lost, nothing doubled: the control plane is killed at every named failpoint."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import cases

from trainmaster import daemons
from trainmaster.home import Home
from trainmaster.testing.survival import Survival
from trainmaster.wire.failpoint import POINTS

CHECKPOINTING = """for i in 1 2 3 4; do echo "{\\"step\\": $i}" | tee ckpt.part; mv ckpt.part ckpt.json; sleep 0.7; done"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An empty home whose server is gone afterwards."""
    home = Home(tmp_path / "home")
    yield home
    daemons.stop(home)


USUAL = ("inbox.commit.after", "event.commit.before", "engine.submit.after", "engine.stop.after", "checkpoint.manifest.before")


@pytest.mark.parametrize("point", cases(USUAL, POINTS))
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
    if point.startswith("engine.record"):  # one after the other: on a busy machine all four may begin within one tick
        trial.options = daemons.Options(failpoints=True, nodes=1, cpus_per_node=1.0)
        trial.spec = {"resources": {"cpus": 1.0}}
    assert trial.run(0, random.Random(0), timeout_s=60.0) == []
    assert once.exists(), f"{point} was never passed twice: the trial shows nothing"
