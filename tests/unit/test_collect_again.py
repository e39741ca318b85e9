"""What a restarted attempt saves of a step that an earlier attempt saved already."""

import os
from pathlib import Path

import pytest
from launches import launch, write

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.wire.launch import Launch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


def collector(orders: Launch) -> Collector:
    made = Collector(orders)
    made.prime()
    made.scan(lambda _: None, True, frozenset())
    return made


def test_the_same_step_in_a_new_directory_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    """StyleGAN: the two became one checkpoint, whose path was the directory of both runs, and the next restart failed."""
    pattern = "runs/*/snapshot-{step}.json"
    first = write(tmp_path / "work" / "runs" / "0" / "snapshot-000012.json", '{"step": 12}')
    os.utime(first, (1, 1))
    orders = launch(tmp_path, checkpoint_path=pattern, attempt=2)
    again = collector(orders)
    write(tmp_path / "work" / "runs" / "1" / "snapshot-000012.json", '{"step": 12, "run": 1}')
    staged = again.scan(lambda _: 7, True, frozenset()) + again.scan(lambda _: 7, True, frozenset())
    assert [(one["name"], one["step"], one["files"]) for one in staged] == [("runs/1/snapshot-000012.json", 12, 1)]
    assert again.scan(lambda _: 7, True, frozenset()) == []


def test_the_same_step_with_the_time_of_another_start_in_its_name_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    """EvoTorch: the files of two starts became one checkpoint, and those of later steps, of one file, were never stored."""
    pattern, out = "out/Problem_*_generation{step}.json", tmp_path / "work" / "out"
    first = write(out / "Problem_2026-11-27-17.00.03_2199_generation000010.json", '{"step": 10}')
    os.utime(first, (1, 1))
    again = collector(launch(tmp_path, checkpoint_path=pattern, attempt=2))
    names = [f"Problem_2026-11-27-17.00.20_2567_generation0000{step}.json" for step in (10, 20)]
    staged = []
    for name in names:
        write(out / name, f'{{"name": "{name}"}}')
        staged += again.scan(lambda _: 7, True, frozenset()) + again.scan(lambda _: 7, True, frozenset())
    again.observations.finished = True
    staged += again.scan(lambda _: 7, False, frozenset())
    assert [(one["name"], one["files"]) for one in staged] == [(f"out/{name}", 1) for name in names]


def test_files_of_one_time_are_one_checkpoint_though_one_of_them_was_there(tmp_path: Path) -> None:
    out = tmp_path / "work" / "out"
    write(out / "net_2026-11-27-17.00.03_rank0_10.json", '{"step": 10}')
    made = collector(launch(tmp_path, checkpoint_path="out/net_*_{step}.json", attempt=2))
    write(out / "net_2026-11-27-17.00.03_rank1_10.json", '{"step": 10}')
    made.observations.finished = True
    staged = made.scan(lambda _: 7, True, frozenset()) + made.scan(lambda _: 7, False, frozenset())
    assert [(one["name"], one["files"]) for one in staged] == [("out/net_2026-11-27-17.00.03_rank*_10.json", 2)]


def test_ranks_that_save_into_directories_of_their_own_save_one_checkpoint(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / "work" / f"rank{rank}" / "step_12.json", '{"step": 12}')
    made = collector(launch(tmp_path, checkpoint_path="rank*/step_{step}.json", attempt=2))
    for rank in (0, 1):
        write(tmp_path / "work" / f"rank{rank}" / "step_12.json", '{"step": 12, "again": 1}')
    staged = made.scan(lambda _: 7, True, frozenset()) + made.scan(lambda _: 7, True, frozenset())
    assert [(one["name"], one["files"]) for one in staged] == [("rank*/step_12.json", 2)]


def test_a_file_beside_the_others_of_a_step_is_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    """A result of a step that was resumed from became its newest checkpoint, without the weights."""
    for name in ("model", "optim"):
        write(tmp_path / "work" / "out" / "ckpt" / f"{name}-10.json", '{"step": 10}')
    made = collector(launch(tmp_path, checkpoint_path="out/*/*-{step}.*", attempt=2))
    write(tmp_path / "work" / "out" / "eval" / "result-10.json", '{"score": 1}')
    staged = [one for _ in range(2) for one in made.scan(lambda _: 7, True, frozenset())]
    made.observations.finished = True
    staged += made.scan(lambda _: 7, False, frozenset())
    assert [one["files"] for one in staged] == [3]


def test_what_two_earlier_starts_left_of_a_step_does_not_say_how_many_files_a_checkpoint_has(tmp_path: Path) -> None:
    out = tmp_path / "work" / "out"
    for start in ("2026-11-27-17.00.03_2199", "2026-11-27-17.00.20_2567"):
        os.utime(write(out / f"Problem_{start}_generation000010.json", '{"step": 10}'), (1, 1))
    again = collector(launch(tmp_path, checkpoint_path="out/Problem_*_generation{step}.json", attempt=3))
    names = [f"Problem_2026-11-27-17.01.40_3001_generation0000{step}.json" for step in (10, 20)]
    staged = []
    for name in names:
        write(out / name, f'{{"name": "{name}"}}')
        staged += again.scan(lambda _: 7, True, frozenset()) + again.scan(lambda _: 7, True, frozenset())
    again.observations.finished = True
    staged += again.scan(lambda _: 7, False, frozenset())
    assert [(one["name"], one["files"]) for one in staged] == [(f"out/{name}", 1) for name in names]
