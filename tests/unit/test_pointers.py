"""Files beside checkpoints that name the newest one (`latest`) always name what a restart was given, or are away."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, tree, write

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import restore
from trainmaster.wire.launch import ResumePoint

# How programs call their checkpoints and say which is the newest: a match, the pattern, the pointer and what it says.
STYLES = {
    "Megatron": ("ckpt/iter_{:07}/mp_rank_00/model.pt", "ckpt/iter_*", "ckpt/latest_checkpointed_iteration.txt", "{}"),
    "DeepSpeed": ("ckpt/global_step{}/model.pt", "ckpt/global_step*", "ckpt/latest", "global_step{}"),
    "OpenMMLab": ("work_dirs/iter_{}.pth", "work_dirs/iter_*.pth", "work_dirs/last_checkpoint", "{work}/work_dirs/iter_{}.pth"),
    "Detectron2": ("output/model_{:07}.pth", "output/*.pth", "output/last_checkpoint", "model_{:07}.pth"),
    "TensorFlow": (
        "tf/ckpt-{}.index",
        "tf/ckpt-{step}.*",
        "tf/checkpoint",
        'model_checkpoint_path: "ckpt-{}"\nall_model_checkpoint_paths: "ckpt-{}"\n',
    ),
    "everything matched": ("ckpt/global_step{}/model.pt", "ckpt/*", "ckpt/latest", "global_step{}\n"),
    "one directory above": ("ckpt/global_step{}/model.pt", "ckpt/*/*.pt", "ckpt/latest", "global_step{}"),
    "big_vision": ("out/ckpt.bv-{:07}-tmp/params/0", "out/ckpt.bv-{step}*", "out/ckpt.bv-LAST", "{:07}-tmp"),
    "a name that ends so": ("out/step_{}/model.pt", "out/step_*", "out/step_latest", "step_{}"),
    "a number alone": ("out/model_{}.pt", "out/model_*.pt", "out/model_last", "{}"),
    "a link": ("ckpt/step_{}/model.pt", "ckpt/step_*", "ckpt/latest", "-> step_{}"),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "QUIET_S", 0.002)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


class Program:
    """What one program of a style writes."""

    def __init__(self, style: str, work: Path) -> None:
        self.file, self.pattern, self.pointer, self._says = STYLES[style]
        self.work = work

    def says(self, step: int, work: Path | None = None) -> str:
        return self._says.replace("{work}", str(work or self.work)).replace("{}", str(step)).replace("{:07}", f"{step:07}")

    def save(self, step: int) -> None:
        write(self.work / self.file.format(step), f"weights of {step}")

    def point(self, step: int) -> None:
        text, place = self.says(step), self.work / self.pointer
        if text.startswith("-> "):
            place.unlink(missing_ok=True)
            place.symlink_to(text[3:])
        else:
            write(place, text)

    def read(self, work: Path | None = None) -> str | None:
        """What its pointer says now; None if there is none."""
        place = (work or self.work) / self.pointer
        if place.is_symlink():
            return f"-> {os.readlink(place)}"
        return place.read_text() if place.exists() else None


def scan(made: Collector) -> list[dict[str, Any]]:
    """Two looks, far enough apart for one that is known to be complete."""
    staged = made.scan(lambda _: None, True, frozenset())
    time.sleep(0.01)
    return staged + made.scan(lambda _: None, True, frozenset())


def saved(program: Program, root: Path, *steps: int) -> list[ResumePoint]:
    """The program saves each step, and points to it; newest first."""
    orders = launch(root, checkpoint_path=program.pattern)
    made, points = Collector(orders), []
    made.prime()
    for step in steps:
        program.save(step)
        program.point(step)
        staged = scan(made)
        assert [(one["step"], one["files"]) for one in staged] == [(step, 1)]
        points.insert(0, resume_point(orders["checkpoint_store"], staged[0]))
    return points


@pytest.mark.parametrize("style", STYLES)
def test_it_names_what_was_restored(tmp_path: Path, style: str) -> None:
    program = Program(style, tmp_path / "work")
    points = saved(program, tmp_path, 10, 20)
    program.save(30)
    program.point(30)  # killed before it was in the store
    restored = restore(launch(tmp_path, checkpoint_path=program.pattern, resume=points, attempt=2))
    assert (restored.step, program.read()) == (20, program.says(20))
    assert (program.work / program.file.format(20)).read_text() == "weights of 20"
    assert not (program.work / program.file.format(30)).exists()


@pytest.mark.parametrize("style", STYLES)
def test_it_goes_to_another_node_and_into_a_fork(tmp_path: Path, style: str) -> None:
    program = Program(style, tmp_path / "work")
    points = saved(program, tmp_path, 10, 20)
    elsewhere = tmp_path / "other"
    for wanted in (points, points[1:]):  # the newest, then an earlier one: a fork from it
        shutil.rmtree(elsewhere, ignore_errors=True)
        orders = launch(tmp_path, checkpoint_path=program.pattern, resume=wanted, attempt=2, work=str(elsewhere))
        step = restore(orders).step
        assert step is not None
        assert program.read(elsewhere) == program.says(step, elsewhere)
        assert (elsewhere / program.file.format(step)).read_text() == f"weights of {step}"


@pytest.mark.parametrize("style", STYLES)
def test_without_a_checkpoint_in_the_store_nothing_is_named(tmp_path: Path, style: str) -> None:
    program = Program(style, tmp_path / "work")
    program.save(10)
    program.point(10)
    restore(launch(tmp_path, checkpoint_path=program.pattern, attempt=2))
    assert program.read() is None
    aside = tree(tmp_path / "work.aside")
    assert f"2/{program.pointer}" in aside
    assert aside[f"2/{program.file.format(10)}"] == "weights of 10"


def test_a_first_directory_is_complete_when_the_program_points_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", 1000.0)
    program = Program("Megatron", tmp_path / "work")
    made = Collector(launch(tmp_path, checkpoint_path=program.pattern))
    made.prime()
    program.save(10)
    assert scan(made) == []  # more files may follow
    program.point(10)
    os.utime(program.work / program.pointer, (1, 1))
    assert scan(made) == []  # it was there before: it says nothing of these files
    program.point(20)
    assert scan(made) == []  # nor does one of another step
    program.point(10)
    assert [one["step"] for one in scan(made)] == [10]


@pytest.mark.parametrize(
    "text", ["", "\n", "7", "model_0000030.pth\nmodel_0000010.pth", "other_10.pth", "x" * 5000, "\x00", "/", "release"]
)
def test_what_names_no_match_is_left_alone(tmp_path: Path, text: str) -> None:
    program = Program("Detectron2", tmp_path / "work")
    points = saved(program, tmp_path, 10)
    write(program.work / program.pointer, text)
    program.save(30)
    restore(launch(tmp_path, checkpoint_path=program.pattern, resume=points, attempt=2))
    assert program.read() == program.says(10)  # the manifest knows what it said
    (program.work / program.pointer).unlink()
    os.mkfifo(program.work / program.pointer)
    assert Collector(launch(tmp_path, checkpoint_path=program.pattern)).scan(lambda _: None, True, frozenset()) == []


@pytest.mark.parametrize("style", STYLES)
def test_one_that_is_away_or_empty_when_a_checkpoint_is_stored_is_remembered(tmp_path: Path, style: str) -> None:
    """Programs write it by `open("latest", "w")`, or remove a link and make it again: a kill in between left it empty or away."""
    program = Program(style, tmp_path / "work")
    orders = launch(tmp_path, checkpoint_path=program.pattern)
    made = Collector(orders)
    made.prime()
    for step in (10, 20):
        program.save(step)
        program.point(step)
        scan(made)
    program.save(30)
    (program.work / program.pointer).unlink()
    if style != "a link":
        (program.work / program.pointer).touch()
    (staged,) = scan(made)
    points = [resume_point(orders["checkpoint_store"], staged)]
    assert restore(launch(tmp_path, checkpoint_path=program.pattern, resume=points, attempt=2)).step == 30
    assert (program.read() or "").splitlines()[0] == program.says(30).splitlines()[0]


def test_the_rest_of_a_name_may_change_its_form(tmp_path: Path) -> None:
    """big_vision keeps every hundredth step, say, and calls the others `-tmp`. The pointer itself matches the pattern."""
    work, orders = tmp_path / "work", launch(tmp_path, checkpoint_path="out/checkpoint.bv-*")
    made, points = Collector(orders), []
    made.prime()
    for rest in ("000000080-tmp", "000000100"):
        write(work / "out" / f"checkpoint.bv-{rest}" / "params" / "0", f"weights of {rest}")
        write(work / "out" / "checkpoint.bv-LAST", rest)
        points += [(rest, resume_point(orders["checkpoint_store"], one)) for one in scan(made)]
    assert [rest for rest, _ in points] == ["000000080-tmp", "000000100"]
    for rest, point in points:
        restore(launch(tmp_path, checkpoint_path="out/checkpoint.bv-*", resume=[point], attempt=2))
        assert (work / "out" / "checkpoint.bv-LAST").read_text() == rest
        assert (work / "out" / f"checkpoint.bv-{rest}" / "params" / "0").read_text() == f"weights of {rest}"
        write(work / "out" / "checkpoint.bv-LAST", "000000080-tmp" if rest == "000000100" else "000000100")


def test_other_files_stay(tmp_path: Path) -> None:
    program = Program("Megatron", tmp_path / "work")
    points = saved(program, tmp_path, 10)
    kept = {
        "ckpt/last_words.txt": "goodbye", "ckpt/latest.bin": b"\xff\xfe", "ckpt/latest_loss.txt": "0.25", "ckpt/note.txt": "10",
        "ckpt/loss-last": "0.5",
    }  # fmt: skip
    for path, data in kept.items():
        write(program.work / path, data)
    restore(launch(tmp_path, checkpoint_path=program.pattern, resume=points, attempt=2))
    assert {path: (program.work / path).read_bytes() for path in kept} == {
        path: data if isinstance(data, bytes) else data.encode() for path, data in kept.items()
    }


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_pattern_that_is_the_link_itself_gets_its_link_back(tmp_path: Path, kind: str) -> None:
    """`--checkpoint out/latest`: at its next save, the program replaces the link, which a directory would prevent."""
    work, orders = tmp_path / "work", launch(tmp_path, checkpoint_path="out/latest")

    def save(step: int) -> None:
        write(work / "out" / f"step_{step}" / "m.pt" if kind == "directory" else work / "out" / f"step_{step}", f"of {step}")
        (work / "out" / "next").symlink_to(f"step_{step}" if step == 10 else work / "out" / f"step_{step}")
        os.replace(work / "out" / "next", work / "out" / "latest")

    made = Collector(orders)
    made.prime()
    save(10)
    made.scan(lambda _: None, True, frozenset())
    made.observations.finished = True
    (staged,) = made.scan(lambda _: None, False, frozenset())
    save(20)  # killed before it was in the store
    points = [resume_point(orders["checkpoint_store"], staged)]
    end = "/m.pt" if kind == "directory" else ""
    for other in ("work", "elsewhere"):
        work = tmp_path / other
        found = restore(launch(tmp_path, checkpoint_path="out/latest", work=str(work), resume=points, attempt=2))
        assert (found.path, os.readlink(work / "out" / "latest")) == ("out/step_10", "step_10")
        assert (work / "out" / f"latest{end}").read_text() == "of 10"
        save(30)
        assert (work / "out" / f"latest{end}").read_text() == "of 30"
    assert (tmp_path / "work" / "out" / f"step_20{end}").read_text() == "of 20"  # no match of the pattern
