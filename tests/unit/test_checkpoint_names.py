"""What a checkpoint of several files is called."""

import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
from contract_answers import DETAIL
from launches import write

from trainmaster.agent.checkpoints.candidate_files import candidates
from trainmaster.agent.files.globs import Glob
from trainmaster.cli.inspect import show


@pytest.mark.parametrize(
    ("pattern", "files", "name"),
    [
        ("logs/[DG]_{step}.pth", ("logs/D_{}.pth", "logs/G_{}.pth"), "logs/*_0.pth"),  # vits; `*0*` is also `G_100.pth`
        ("out/*_epoch_{step}.th", ("out/model_state_epoch_{}.th", "out/training_state_epoch_{}.th"), "out/*_state_epoch_0.th"),
        ("r*/step_{step}.pt", ("r0/step_{}.pt", "r1/step_{}.pt"), "r*/step_0.pt"),
        ("m{step}.pt*", ("m{}.pt", "m{}.pt.npy"), "m0.pt*"),
        ("*-{step}-*.bin", ("w-{}-a.bin", "v-{}-b.bin"), "*-0-*.bin"),
        ("s{step}/*", ("s{}/a.pt", "s{}/b.pt"), "s0/*.pt"),
    ],
)
def test_the_name_of_several_files_matches_no_other_step(pattern: str, files: tuple[str, ...], name: str, tmp_path: Path) -> None:
    for step in (0, 10, 100):
        for file in files:
            write(tmp_path / file.format(step), b"x")
    first, *others = candidates(Glob(pattern, str(tmp_path)))
    assert first.name == name
    assert all(fnmatch(root, name) for root in first.roots)
    assert not any(fnmatch(root, name) for other in others for root in other.roots)


@pytest.mark.parametrize(
    ("saved", "is_told"),
    [
        ([(1, 20, 1), (1, 40, 2), (1, 60, 3)], True),
        ([(1, None, 1), (1, None, 2), (2, None, 2), (2, None, 3)], True),  # the second attempt saved one again
        ([(1, 19, 1), (1, 40, 2), (2, 20, 1)], True),  # likewise; the steps are approximate
        ([(1, 40, 1), (1, 40, 2)], True),  # no step was printed between them
        ([(1, 20, 1), (1, 40, 0)], False),  # KataGo's `checkpoint_prev0.ckpt` is the newest of its copies
        ([(1, None, 1), (1, None, 0)], False),
        ([(1, 20, 1), (1, 40, 1), (1, 60, 2)], False),
        ([(1, 20, 1), (2, 40, 0)], False),
    ],
)
def test_a_number_that_does_not_grow_is_not_called_a_step(saved: list[tuple[int, int | None, int]], is_told: bool) -> None:
    (one,) = DETAIL["checkpoints"]
    kept = [{**one, "attempt": attempt, "step": step, "name": f"train/prev{number}.ckpt"} for attempt, step, number in saved]
    hint = "  their names have a number; if it is the step: --checkpoint 'train/prev{step}.ckpt'"
    assert (hint in show._checkpoints({**DETAIL, "checkpoints": kept}, 1100.0, 100)) is is_told


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("out/Problem_2026-11-27-16.53.31_29248_generation{}.pickle", "out/Problem_*_generation{step}.pickle"),  # EvoTorch
        ("outputs/2026-11-27/16-56-29/model_{}.pt", "outputs/*/*/model_{step}.pt"),  # Hydra
        ("runs/20261127-165629/step{}/model.h5", "runs/*/step{step}/model.h5"),
        ("logs/version_3/net{}.ckpt", "logs/version_*/net{step}.ckpt"),
        ("output/20261128_063519_09bfe1/policies/{}", "output/*_*/policies/{step}"),  # imitation: the time, and a random id
        ("out/20261127_165629_{}.h5", "out/*_{step}.h5"),
        ("out/resnet50-{}.pt", "out/resnet50-{step}.pt"),
        ("out/v1.10.2/net{}.pt", "out/v1.10.2/net{step}.pt"),
    ],
)
def test_the_pattern_for_a_step_matches_what_the_next_start_saves(name: str, pattern: str) -> None:
    """The time and the process id of the first start stood in it: nothing that a restart saved matched."""
    (one,) = DETAIL["checkpoints"]
    kept = [{**one, "attempt": 1, "step": None, "name": name.format(number)} for number in (7, 8)]
    shown = show._checkpoints({**DETAIL, "checkpoints": kept}, 1100.0, 200)
    hint = f"  their names have a number; if it is the step: --checkpoint {shlex.quote(pattern)}"
    assert hint in shown
    assert Glob(pattern, "/").step(name.format(8)) == 8


def test_checkpoints_of_one_step_are_told_apart_by_the_ids_that_from_takes() -> None:
    (one,) = DETAIL["checkpoints"]
    kept = [{**one, "good": True, "approximate": False, "id": f"0001-0000{at}", "step": step, "name": f"{at}.pt"} for at, step in ((1, 20), (2, 30), (3, 30))]
    shown = show._checkpoints({**DETAIL, "checkpoints": kept}, 1100.0, 80)
    assert [line.split()[-1] for line in shown[2:]] == ["1.pt", "@0001-00002", "@0001-00003"]
