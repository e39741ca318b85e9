"""Which shapes the names of files have: what is one checkpoint, and which pattern is advised for it."""

import os
import time
from pathlib import Path

import pytest
from launches import launch, write
from test_overlooked import advised, begun, later, told, zipped
from test_overlooked import step as stepped

from trainmaster.agent.checkpoints.candidate_files import candidates
from trainmaster.agent.checkpoints.pattern_advice import advice
from trainmaster.agent.files.globs import Glob


@pytest.mark.parametrize(
    ("names", "pattern", "sizes"),
    [
        (("G_100.pth", "D_100.pth", "G_120.pth", "D_120.pth", "G_140.pth"), "out/*_{step}.pth", [2, 2, 1]),
        (
            ("model_state_e1_b0.th", "training_state_e1_b0.th", "best.th", "model_state_e2_b0.th", "training_state_e2_b0.th"),
            "out/*_state_e{step}_b0.th", [2, 2],
        ),
        (("5-model.bin", "5-optimizer.bin", "10-model.bin", "10-optimizer.bin"), "out/{step}-*.bin", [2, 2]),
        (
            (*(f"train-{step}.{end}" for step in (40, 80) for end in ("data-00000-of-00001", "index", "meta")), "train-120.index"),
            "out/train-{step}.*", [3, 3, 1],
        ),
        (("train-40.data-00000-of-00001", "train-40.index", "train-40.meta"), "out/train-{step}.*", [3]),
    ],
    ids=["VITS", "AllenNLP", "number first", "TensorFlow", "TensorFlow, first"],
)  # fmt: skip
def test_files_of_different_names_with_the_same_numbers_are_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], pattern: str, sizes: list[int]
) -> None:
    """VITS deletes none of them: with its directory as the checkpoint, each commit would copy all.

    The directory of DeepSpeech changes with each epoch: it was advised, never stored, and all of it set aside by a restart.
    """
    suffix = names[0].rpartition(".")[2]
    wanted = "out/train-*" if names[0].startswith("train") else f"out/*.{suffix}"
    text = advised(tmp_path, monkeypatch, wanted, tuple(f"out/{name}" for name in names))
    assert text.endswith(f"; if those of the same number belong together, write --checkpoint '{pattern}'")
    assert [len(one.roots) for one in candidates(Glob(pattern, str(tmp_path / "work")))] == sizes


@pytest.mark.parametrize(
    "names",
    [
        ("model_1.pt", "optim_1.pt"),  # the program may keep one only: its directory does not grow
        ("model_1.pt", "model_2.pt", "model_3.pt", "model_4.pt", "best_2.pt", "best_3.pt"),
        ("model_e1_b0.pt", "optim_e1_b0.pt", "model_e1_b5.pt", "optim_e1_b5.pt", "model_e2_b0.pt", "optim_e2_b0.pt"),
    ],
    ids=["one", "best ones", "two numbers grow"],
)
def test_other_files_of_different_names_need_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    text = advised(tmp_path, monkeypatch, "out/*.pt", tuple(f"out/{name}" for name in names))
    assert text.endswith("; if it needs them all, write --checkpoint out")


def test_two_directories_with_the_same_files_have_one_shape(tmp_path: Path) -> None:
    """spaCy: `model-last` was said to have fewer files than `model-best`, and the finished model was not stored."""
    for name in ("model-best", "model-last"):
        for file in ("config.cfg", "vocab/strings.json"):
            write(tmp_path / "out" / name / file, b"x")
    best, last = candidates(Glob("out/model-*", str(tmp_path)))
    assert best.shape == last.shape


def test_the_name_of_several_files_says_their_step(tmp_path: Path) -> None:
    """nanochat's files of a step begin with nothing in common but their directory."""
    (tmp_path / "d2").mkdir()
    for step in (5, 40):
        for name in (f"model_{step:06d}.pt", f"optim_{step:06d}_rank0.pt", f"meta_{step:06d}.json"):
            (tmp_path / "d2" / name).write_text(name)
    found = candidates(Glob("d2/*_{step}*", str(tmp_path)))
    assert [(one.step, one.name) for one in found] == [(5, "d2/*_000005*"), (40, "d2/*_000040*")]


@pytest.mark.parametrize(
    ("pattern", "newest", "is_told"),
    [("out/last.ckpt", "last-v1", True), ("out/last.ckpt", "last", False), ("out/last*.ckpt", "last-v1", False)],
)
def test_a_later_version_that_is_not_collected_is_told(tmp_path: Path, pattern: str, newest: str, is_told: bool) -> None:
    """chemprop's second attempt wrote `last-v1.ckpt` beside the restored `last.ckpt`, which the third was given again."""
    for name in ("last", "last-v1", "best-v1"):
        path = write(tmp_path / "work" / "out" / f"{name}.ckpt", b"x")
        os.utime(path, (2000 + (name == newest), 2000 + (name == newest)))
    glob = Glob(pattern, str(tmp_path / "work"))
    words = "out/last-v1.ckpt is in no checkpoint; if the program wrote it in place of out/last.ckpt, write --checkpoint 'out/last*.ckpt'"
    assert advice(glob, candidates(glob), launch(tmp_path, checkpoint_path=pattern)) == words * is_told


@pytest.mark.parametrize(
    ("pattern", "told_of"),
    [("out/run_1/ckpt_{step}.pt", True), ("out/run_*/ckpt_*.pt", False), ("out/run_1/*.pt", False)],
    ids=["of one start", "of all starts", "of another shape"],
)
def test_what_a_restart_saves_under_another_number_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, told_of: bool
) -> None:
    """Stable-Baselines3's zoo: each start counts its directory on, and a second kill would have cost all since the first."""
    path = write(tmp_path / "work" / "out" / "run_1" / "ckpt_10.pt", zipped())
    os.utime(path, (time.time() - 500, time.time() - 500))
    it, progress = begun(tmp_path, checkpoint_path=pattern, attempt=2)
    assert it._scans._collector is not None
    it._scans._collector.prime()
    stepped(progress, 11, ago_s=65)
    stepped(progress, 20, ago_s=0)
    assert later(it, monkeypatch) == []  # nothing is saved yet
    write(tmp_path / "work" / "out" / "run_2" / "ckpt_20.pt", zipped())
    missed = f"the checkpoint pattern {pattern!r} does not match what this attempt saves: out/run_2/ckpt_20.pt"
    advice = "to store these, write --checkpoint 'out/run_*/ckpt_*.pt'"
    assert later(it, monkeypatch) == ([f"{missed}; {advice}"] if told_of else [])
    it.finish(well=False)
    assert told(it) == []  # it was told
