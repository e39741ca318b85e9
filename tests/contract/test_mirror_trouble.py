"""What fails on one side of a mirror costs the other side nothing."""

import json
from pathlib import Path

from mirror_world import world

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
