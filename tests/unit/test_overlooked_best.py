"""Which checkpoint is advised where a program saves its best one beside those of the steps."""

import io
import os
import pickle
import time
import zipfile
from pathlib import Path

import pytest
from launches import launch, write

from trainmaster.agent.checkpoints.overlooked import Overlooked, lookalikes
from trainmaster.agent.metrics.progress import Progress
from trainmaster.agent.transport.outbox import Outbox


def zipped() -> bytes:
    """As `torch.save` writes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 1}))
    return file.getvalue()


@pytest.mark.parametrize("newest", ["best", "3"])
def test_the_best_one_is_advised_after_those_of_the_steps(tmp_path: Path, newest: str) -> None:
    """ConvNeXt: `--checkpoint out/checkpoint-best.pth` was advised, which the program refuses to resume from."""
    for name in ("2", "3", "best"):
        path, early = write(tmp_path / "work" / "out" / f"checkpoint-{name}.pth", zipped()), 0 if name == newest else 9
        os.utime(path, (time.time() - early, time.time() - early))
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    text = Overlooked(launch(tmp_path), progress, time.time() - 100).look(None, True)
    named = "these look like checkpoints: out/checkpoint-2.pth, out/checkpoint-2.pth"
    line = "with --checkpoint 'out/checkpoint-{step}.pth' a restart is given the newest of them"
    assert (text or "").replace("-3.", "-2.") == f"{named}; {line}; --resume-arguments hands its path to the program"


def test_a_best_one_alone_is_advised(tmp_path: Path) -> None:
    for name in ("best.ckpt", "weights-3.pt"):
        write(tmp_path / "work" / name, zipped())
    assert list(lookalikes(launch(tmp_path), 0.0, ended_well=False)) == ["best*.ckpt", "weights-*.pt"]


def test_a_name_without_a_number_is_advised_with_its_later_versions(tmp_path: Path) -> None:
    """Lightning's: with `--checkpoint last.ckpt`, nothing that a second attempt saved was stored."""
    for name in ("last.ckpt", "last-step=5.ckpt"):
        write(tmp_path / "work" / name, zipped())
        os.utime(tmp_path / "work" / name, (2000 + len(name), 2000 + (name == "last.ckpt")))
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    text = Overlooked(launch(tmp_path), progress, 100).look(None, False)
    line = "with --checkpoint 'last*.ckpt' a restart is given the newest of them"
    assert text == f"these look like checkpoints: last.ckpt; {line}; --resume-arguments hands its path to the program"


def test_what_is_saved_at_the_end_is_advised_after_those_of_the_steps(tmp_path: Path) -> None:
    """A trainer of tables with Lightning's rich bar: its only step is printed at the end, and its model is saved after it."""
    for ago_s, path in enumerate(("final/model.ckpt", "saved/classification-1_epoch=16.ckpt", "saved/classification-1_epoch=13.ckpt")):
        write(tmp_path / "work" / path, zipped())
        os.utime(tmp_path / "work" / path, (time.time() - 10 * ago_s, time.time() - 10 * ago_s))
    progress = Progress(Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl")))
    progress.written_s = time.time()
    progress.printed(0, 1080, {})
    text = Overlooked(launch(tmp_path), progress, time.time() - 100).look(None, True)
    named = "these look like checkpoints: saved/classification-1_epoch=16.ckpt, saved/classification-1_epoch=13.ckpt"
    line = "with --checkpoint 'saved/classification-*_epoch=*.ckpt' a restart is given the newest of them"
    assert text == f"{named}; {line}; --resume-arguments hands its path to the program"
