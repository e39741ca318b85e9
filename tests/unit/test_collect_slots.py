"""Numbers of names that a program shifts at each save, or never changes, are no steps: DeepChem's newest is `checkpoint1.pt`."""

from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, write

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


class Run:
    """A program that saves into `out`, and what is stored of it."""

    def __init__(self, root: Path, pattern: str, resume_arguments: str = "") -> None:
        self.out = root / "work" / "out"
        self.out.mkdir(parents=True)
        self.launch = launch(root, checkpoint_path=pattern, resume_arguments=resume_arguments)
        self.made = Collector(self.launch)
        self.made.prime()
        self.step = 0
        self.staged: list[dict[str, Any]] = []

    def restart(self) -> None:
        """The next attempt, which is given what was stored last."""
        self.made.close()
        self.launch["attempt"] += 1
        self.launch["resume"] = [resume_point(self.launch["checkpoint_store"], self.staged[-1])]
        self.made = Collector(self.launch)
        self.made.prime()

    def save_shifted(self, step: int, slots: int = 3) -> list[tuple[str, Any, Any]]:
        """As DeepChem does it: the oldest is removed, each of the others renamed to the next number."""
        self.step = step
        write(self.out / "temp_checkpoint.pt", f"state of {step}")
        (self.out / f"checkpoint{slots}.pt").unlink(missing_ok=True)
        for slot in reversed(range(1, slots)):
            if (self.out / f"checkpoint{slot}.pt").exists():
                (self.out / f"checkpoint{slot}.pt").rename(self.out / f"checkpoint{slot + 1}.pt")
        (self.out / "temp_checkpoint.pt").rename(self.out / "checkpoint1.pt")
        return self.stored()

    def save(self, name: str, step: int) -> list[tuple[str, Any, Any]]:
        """Write it anew, under another name first."""
        self.step = step
        write(self.out / "new", f"state of {step}")
        (self.out / "new").rename(self.out / name)
        return self.stored()

    def stored(self) -> list[tuple[str, Any, Any]]:
        """The name, the step and whether that is approximate, of what three scans store."""
        staged = [one for _ in range(3) for one in self.made.scan(lambda _: self.step, True, frozenset())]
        self.staged += staged
        return [(one["name"], one["step"], one["approximate"]) for one in staged]


def test_a_shifted_number_is_no_step(tmp_path: Path) -> None:
    """`step 5` was the oldest of five, and a restart was given it."""
    run = Run(tmp_path, "out/check*.pt")
    assert run.save_shifted(200) == [("out/checkpoint1.pt", 1, False)]  # nothing shows it yet
    for step in (400, 600, 800, 1000):
        assert run.save_shifted(step) == [("out/checkpoint1.pt", step, True)]


def test_two_saves_between_two_scans(tmp_path: Path) -> None:
    run = Run(tmp_path, "out/check*.pt")
    run.save_shifted(200)
    run.made.scan = lambda *_: []  # type: ignore[method-assign]
    run.save_shifted(400)
    del run.made.scan
    assert sorted(run.save_shifted(600)) == [("out/checkpoint1.pt", 600, True), ("out/checkpoint2.pt", 600, True)]


def test_numbers_of_files_that_stay_are_steps(tmp_path: Path) -> None:
    run = Run(tmp_path, "out/check*.pt")
    for step in (1, 2, 3):
        assert run.save(f"checkpoint{step}.pt", step * 100) == [(f"out/checkpoint{step}.pt", step, False)]
    assert run.save("checkpoint3.pt", 350) == [("out/checkpoint3.pt", 3, False)]  # the last one, saved again at the end


def test_a_number_that_stays_while_the_steps_go_on_is_no_step(tmp_path: Path) -> None:
    """`resumed from step 0: its first step was 61`."""
    run = Run(tmp_path, "out/ckpt_*.pt")
    assert run.save("ckpt_0.pt", 10) == run.save("ckpt_0.pt", 20) == [("out/ckpt_0.pt", 0, False)]
    assert run.save("ckpt_0.pt", 30) == [("out/ckpt_0.pt", 30, True)]
    run.restart()
    assert run.save("ckpt_0.pt", 40) == [("out/ckpt_0.pt", 40, True)]  # not step 0, as if it had begun again


def test_an_epoch_that_is_saved_again_within_it_stays_one(tmp_path: Path) -> None:
    run = Run(tmp_path, "out/*.pt")
    for step in (100, 200, 300, 400):
        assert run.save("model_epoch_1.pt", step) == [("out/model_epoch_1.pt", 1, False)]


@pytest.mark.parametrize(("pattern", "given"), [("out/check*.pt", "--load {step}"), ("out/checkpoint{step}.pt", "")])
def test_a_number_that_the_user_names_stays(tmp_path: Path, pattern: str, given: str) -> None:
    run = Run(tmp_path, pattern, given)
    for step in (100, 200, 300, 400):
        assert run.save("checkpoint1.pt", step) == [("out/checkpoint1.pt", 1, False)]
    assert ("out/checkpoint1.pt", 1, False) in run.save_shifted(500)


def test_the_last_one_that_is_renamed_to_its_step_has_that_step(tmp_path: Path) -> None:
    run = Run(tmp_path, "out/*.pt")
    write(run.out / "model_last.pt", "state of 100")
    run.step = 100
    assert run.stored() == [("out/model_last.pt", 100, True)]
    (run.out / "model_last.pt").rename(run.out / "model_100.pt")
    assert run.stored() == [("out/model_100.pt", 100, False)]
