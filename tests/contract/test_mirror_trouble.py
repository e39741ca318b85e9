"""What fails on one side of a mirror costs the other side nothing."""

import json
from pathlib import Path

import pytest
from mirror_world import world

from trainmaster import troubles
from trainmaster.errors import DamagedError
from trainmaster.store.identity import set_aside
from trainmaster.store.metrics.feed import SqlFeed
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.tracking.to_wandb import WandbTracker


def steps_in(staged: Path) -> list[int]:
    return [json.loads(line)[1] for line in staged.read_text().splitlines()]


def test_a_store_that_fails_holds_up_no_other_run_and_a_file_gets_no_step_twice(tmp_path: Path) -> None:
    """A tracker of files cannot say what a run contains, so its file is written again."""
    with world() as made:
        made.tracker = WandbTracker(tmp_path)  # type: ignore[assignment]
        made.mirror = made.fresh()
        for steps in ([1, 2], [3, 4]):
            for job in made.attempts:
                made.report(job, steps, 0.5)
            made.until_quiet()
            made.unstored.add("a-1")
            made.log.set(made.log.now["a-1"])
        staged = {job: tmp_path / "staged" / job / "points.jsonl" for job in made.attempts}
        assert (steps_in(staged["b-1"]), made.mirror.lag().points) == ([1, 2, 3, 4], 0)
        assert made.mirror.troubled() == {"a-1": "the store does not answer"}
        made.unstored.clear()
        made.until_quiet()
        assert (steps_in(staged["a-1"]), made.mirror.troubled()) == ([1, 2, 3, 4], {})


@pytest.mark.parametrize("running", [True, False])
def test_the_points_of_a_new_metric_store_are_mirrored_after_the_old_one_was_set_aside(running: bool) -> None:
    """Its numbers began again at 1, below the mirror's cursor: what came first was skipped, without a word."""
    with world() as made:
        made.report("a-1", list(range(1, 21)), 0.5)
        made.until_quiet()
        made.metrics.close()
        made.feed.close()
        set_aside(made.metrics_db, "metrics", DamagedError("metrics.db is damaged"))
        troubles.own.forget()
        made.metrics, made.feed = SqlMetricStore(made.metrics_db), SqlFeed(made.metrics_db)
        made.mirror = made.fresh()
        if running:
            made.until_quiet()
        made.report("a-1", list(range(21, 26)), 0.5)
        if running:
            assert made.mirror.lag().points == 5
        made.until_quiet()
        assert made.mirrored("a-1") == [("loss", step) for step in range(1, 26)]
        assert made.mirror.lag().points == 0


def test_a_restored_home_writes_files_of_its_own_and_leaves_those_of_the_lost_one(tmp_path: Path) -> None:
    """It remembered their paths: it cut them off where the backup was made, and went on there."""
    with world() as made:
        made.tracker = WandbTracker(tmp_path / "lost")  # type: ignore[assignment]
        made.mirror = made.fresh()
        made.report("a-1", [1, 2, 3], 0.5)
        made.until_quiet()
        lost = tmp_path / "lost" / "staged" / "a-1" / "points.jsonl"
        before = lost.read_text() + '["loss", 4, 4.5, 1.0]\n'  # after the backup
        lost.write_text(before)
        made.tracker = WandbTracker(tmp_path / "restored")  # type: ignore[assignment]
        made.mirror = made.fresh()
        made.report("a-1", [4, 5], 0.5)
        made.until_quiet()
        assert lost.read_text() == before
        assert sorted(steps_in(tmp_path / "restored" / "staged" / "a-1" / "points.jsonl")) == [1, 2, 3, 4, 5]
        assert made.file.urls("a-1")["memory"].startswith(str(tmp_path / "restored"))
