"""What a checkpoint of several files is called."""

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
