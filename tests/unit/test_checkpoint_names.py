"""What a checkpoint of several files is called."""

from fnmatch import fnmatch
from pathlib import Path

import pytest
from launches import write

from trainmaster.agent.checkpoints.candidate_files import candidates
from trainmaster.agent.files.globs import Glob


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
