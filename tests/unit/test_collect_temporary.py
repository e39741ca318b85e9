"""A directory whose name has an end that the program takes off when it is done is no checkpoint, however long it rests."""

import sys
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, write

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.rename_events import Renames

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's notices of renames are Linux's")
FILES = ("config.yaml", "model.pt", "optim.pt", "train.pt")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


class Run:
    """A program that saves into `out`, and what is stored of it."""

    def __init__(self, root: Path, pattern: str) -> None:
        self.out = root / "work" / "out"
        self.out.mkdir(parents=True)
        self.launch = launch(root, checkpoint_path=pattern)
        self.staged: list[dict[str, Any]] = []
        self.told: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.made = Collector(self.launch)
        self.made.prime()
        self.made.unstored.tell = self.told.append
        assert self.stored() == []

    def restart(self, job: str = "digits-1") -> None:
        """The next attempt, or another job, with what is stored. `out` is as a restore would leave it."""
        self.made.close()
        store = Path(self.launch["checkpoint_store"])
        self.launch["attempt"] += 1
        self.launch["resume"] = [resume_point(str(store), one) for one in reversed(self.staged)]
        self.launch["checkpoint_store"] = str(store.with_name(job))
        self._begin()

    def write(self, name: str, *files: str) -> None:
        for file in files:
            write(self.out / name / file, f"{file} of {name}")

    def rename(self, name: str, to: str) -> None:
        (self.out / name).rename(self.out / to)

    def stored(self, running: bool = True) -> list[tuple[int, int]]:
        """The step and the number of files of what three scans store."""
        staged = [one for _ in range(3) for one in self.made.scan(lambda _: None, running, frozenset())]
        self.staged += staged
        return [(one["step"], one["files"]) for one in staged]


@pytest.mark.parametrize("pattern", ["out/step*", "out/step{step}*"])
def test_one_that_the_program_renames_is_awaited(tmp_path: Path, pattern: str) -> None:
    """OLMo paused between two files and was killed: `step40-unsharded-tmp` was given to it, and had no `train.pt`."""
    run = Run(tmp_path, pattern)
    run.write("step20-unsharded-tmp", *FILES)
    run.rename("step20-unsharded-tmp", "step20-unsharded")
    assert run.stored() == [(20, 4)]
    run.write("step40-unsharded-tmp", *FILES[:3])
    assert run.stored() == run.stored(running=False) == []
    assert run.told == []
    run.rename("step40-unsharded-tmp", "step40-unsharded")
    assert run.stored() == [(40, 3)]


@pytest.mark.parametrize("pattern", ["out/step*", "out/step{step}*"])
def test_a_restart_remembers_the_end(tmp_path: Path, pattern: str) -> None:
    """OLMo's second attempt paused in its first save, which was stored without `train.pt`."""
    run = Run(tmp_path, pattern)
    run.write("step20-unsharded-tmp", *FILES)
    run.rename("step20-unsharded-tmp", "step20-unsharded")
    assert run.stored() == [(20, 4)]
    for step in (40, 60):  # it saves once in each attempt
        run.restart()
        run.write(f"step{step}-unsharded-tmp", *FILES[:3])
        assert run.stored() == run.stored(running=False) == []
        run.rename(f"step{step}-unsharded-tmp", f"step{step}-unsharded")
        assert run.stored() == [(step, 3)]
    assert not any(run.told)


def test_a_restart_takes_no_end_from_names_alone(tmp_path: Path) -> None:
    """big_vision renames nothing: all of its checkpoints have the end."""
    run = Run(tmp_path, "out/step*")
    for step in (20, 40):
        run.write(f"step{step}-tmp", *FILES)
        assert run.stored() == [(step, 4)]
        run.restart()


def test_a_job_that_begins_with_the_checkpoint_of_another_takes_no_end_from_it(tmp_path: Path) -> None:
    """It may run another program."""
    run = Run(tmp_path, "out/step*")
    run.write("step20-tmp", *FILES)
    run.rename("step20-tmp", "step20")
    assert run.stored() == [(20, 4)]
    run.restart("digits-2")
    run.write("step40-tmp", *FILES)
    assert run.stored() == [(40, 4)]


def test_one_that_was_stored_before_it_was_whole_teaches_it_too(tmp_path: Path) -> None:
    run = Run(tmp_path, "out/step*")
    run.write("step0-tmp", "model.pt")
    assert run.stored() == [(0, 1)]  # nothing says yet what it lacks
    run.write("step0-tmp", "train.pt")
    run.rename("step0-tmp", "step0")
    assert run.stored() == [(0, 2)]
    run.write("step20-tmp", "model.pt", "train.pt")
    assert run.stored() == []


def test_an_end_of_whole_ones_means_something_else(tmp_path: Path) -> None:
    """It takes `-best` off the one before when there is a better one; big_vision renames nothing."""
    run = Run(tmp_path, "out/step*")
    for step in (20, 40, 60):
        run.write(f"step{step}-best", *FILES)
        assert (step, 4) in run.stored()
        run.rename(f"step{step}-best", f"step{step}")


@pytest.mark.parametrize("end", ["-last", ".latest", "_best", "-final"])
def test_the_end_of_the_newest_is_no_temporary_one(tmp_path: Path, end: str) -> None:
    """It was not stored before it lost its end: the store refused, say. The last checkpoint of all keeps its end."""
    run = Run(tmp_path, "out/step*")
    run.write(f"step20{end}", *FILES)
    run.rename(f"step20{end}", "step20")
    assert run.stored() == [(20, 4)]
    run.write(f"step40{end}", *FILES)
    assert run.stored() == [(40, 4)]


def test_those_that_are_dropped_release_what_the_system_has_few_of() -> None:
    """A user may have 128 of them: then no rename is seen, and a first directory waits for 20 s."""
    assert all(Renames()._descriptor >= 0 for _ in range(300))
