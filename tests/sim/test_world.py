"""Two hundred seeded histories of crashes, partitions, lost nodes, late and repeated messages."""

import shutil
import tempfile
from pathlib import Path

import pytest

from trainmaster.home import Home
from trainmaster.testing.scenario import Scenario

SEEDS = 200
CHUNK = 20  # seeds a test: enough tests to spread over processes, few enough to be cheap


def play(seed: int) -> tuple[list[str], int]:
    """One history on a memory file system where there is one; returns what it broke and how often control died."""
    fast = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=fast if fast.is_dir() else None))
    try:
        scenario = Scenario(Home(directory), seed)
        scenario.play(jobs=6)
        return scenario.problems(), scenario.crashes
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_law_holds_in_every_history(first: int) -> None:
    """To replay one seed alone: `python -c "from tests.sim.test_world import play; print(play(SEED))"`."""
    played = {seed: play(seed) for seed in range(first, first + CHUNK)}
    assert {seed: problems for seed, (problems, _) in played.items() if problems} == {}
    assert sum(crashes for _, crashes in played.values()) > 0, "control never died: the histories are too tame"
