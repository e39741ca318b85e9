"""Contract suite for `trainmaster.ports.tracker.Tracker`, to subclass, and a tracker in memory that satisfies it.

A tracker may keep every row, as MLflow does: then the mirror must not send a step twice. Every tracker must deduplicate a
repetition at the same mark, find a run again by its id, and report when a run is gone.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from trainmaster.ports.tracker import Begun, Run, RunGoneError, RunPoint, RunRefusedError, RunStatus, RunTroubledError, Tracker
from trainmaster.wire.runs import TAG_RUN, run_id

Rows = dict[str, list[tuple[int, float]]]


def some_run(job: str = "digits-1", **changes: object) -> Run:
    """A run that has just begun."""
    id = run_id("server", job)
    tags = {TAG_RUN: id, "owner": "team-a"}
    begun = Run(id, job, "digits", RunStatus.RUNNING, 1_000.0, 1_001.0, None, {"lr": "0.1", "opt": "adam"}, tags)
    return replace(begun, **changes)  # type: ignore[arg-type]


def points(name: str, *steps: int, value: float = 0.5) -> list[RunPoint]:
    """One point per step."""
    return [RunPoint(name, step, value + step, 1_002.0 + step) for step in steps]


class TrackerContract:
    """Fixtures: `tracker`; `read(ref)` -> rows by metric; `described(ref)` -> (params, status); `wipe()` deletes everything."""

    def test_a_run_is_begun_once(self, tracker: Tracker) -> None:
        first, again, other = tracker.begin(some_run()), tracker.begin(some_run()), tracker.begin(some_run("digits-2"))
        assert (first.ref, first.url) == (again.ref, again.url)
        assert other.ref != first.ref

    def test_points_are_there_once_however_often_they_are_sent(self, tracker: Tracker, read: Callable[[str], Rows]) -> None:
        ref, sent = tracker.begin(some_run()).ref, points("loss", 1, 2, 3)
        mark = tracker.log(ref, sent, "")
        assert tracker.log(ref, sent, "") == mark
        more = [*points("loss", 4, 5), *points("system/cpu_percent", 4), *points("loss/rank1", 4)]
        for _ in range(2):
            newest = tracker.log(ref, more, mark)
        tracker.settle(ref, some_run(), newest)
        rows = read(ref)
        assert sorted(rows) == ["loss", "loss/rank1", "system/cpu_percent"]
        assert sorted(rows["loss"]) == [(1, 1.5), (2, 2.5), (3, 3.5), (4, 4.5), (5, 5.5)]

    def test_a_run_taken_up_again_without_memory_has_no_step_twice(self, tracker: Tracker, read: Callable[[str], Rows]) -> None:
        run = some_run()
        tracker.log(tracker.begin(run).ref, points("loss", 1, 2), "")
        begun = tracker.begin(run)
        logged = begun.logged.get("loss", {})
        wanted = [point for point in points("loss", 1, 2, 3, value=9.5) if point.step not in logged]
        tracker.settle(begun.ref, run, tracker.log(begun.ref, wanted, ""))
        assert sorted(step for step, _ in read(begun.ref)["loss"]) == [1, 2, 3]

    def test_what_is_no_plain_number_arrives(self, tracker: Tracker, read: Callable[[str], Rows]) -> None:
        ref, run = tracker.begin(some_run()).ref, some_run()
        odd = [RunPoint("loss", step, value, 5.0) for step, value in enumerate((math.nan, math.inf, -math.inf, 1e-300))]
        tracker.settle(ref, run, tracker.log(ref, odd, ""))
        values = dict(read(ref)["loss"])
        assert math.isnan(values[0])
        assert (values[1] > 1e38, values[2] < -1e38, abs(values[3]) < 1e-30) == (True, True, True)

    def test_many_points_at_once(self, tracker: Tracker, read: Callable[[str], Rows]) -> None:
        ref, run = tracker.begin(some_run()).ref, some_run()
        tracker.settle(ref, run, tracker.log(ref, points("loss", *range(2500)), ""))
        assert sorted(step for step, _ in read(ref)["loss"]) == list(range(2500))

    def test_it_tells_params_and_how_the_run_ended(
        self, tracker: Tracker, described: Callable[[str], tuple[dict[str, str], str]]
    ) -> None:
        run = some_run()
        ref = tracker.begin(run).ref
        for before in (None, None, run):
            tracker.tell(ref, run, before)
        ended = some_run(status=RunStatus.KILLED, ended_s=1_500.0, params={"lr": "0.1", "opt": "adam", "late": "yes"})
        tracker.tell(ref, ended, run)
        tracker.settle(ref, ended, tracker.log(ref, points("loss", 1), ""))
        params, status = described(ref)
        assert (params["lr"], params["late"], status) == ("0.1", "yes", "KILLED")

    def test_a_wiped_tracker_says_so_and_takes_the_run_anew(
        self, tracker: Tracker, read: Callable[[str], Rows], wipe: Callable[[], None]
    ) -> None:
        ref = tracker.begin(some_run()).ref
        mark = tracker.log(ref, points("loss", 1, 2), "")
        assert tracker.holds(ref)
        wipe()
        assert not tracker.holds(ref)
        with pytest.raises(RunGoneError):
            tracker.log(ref, points("loss", 3), mark)
        with pytest.raises(RunGoneError):
            tracker.tell(ref, some_run(status=RunStatus.FINISHED), some_run())
        begun = tracker.begin(some_run())
        tracker.settle(begun.ref, some_run(), tracker.log(begun.ref, points("loss", 1, 2, 3), ""))
        assert sorted(step for step, _ in read(begun.ref)["loss"]) == [1, 2, 3]

    def test_an_artifact_is_copied(self, tracker: Tracker, tmp_path: Path) -> None:
        source = tmp_path / "roc.png"
        source.write_bytes(b"picture")
        ref = tracker.begin(some_run()).ref
        for _ in range(2):
            tracker.keep(ref, "out/plots/roc.png", source)


@dataclass
class MemoryTracker:
    """Keeps every row except exact repetitions, as MLflow does. `trouble` is called at the start and end of each verb."""

    trouble: Callable[[str], None] = lambda verb: None
    runs: dict[str, Run] = field(default_factory=dict)
    rows: dict[str, list[RunPoint]] = field(default_factory=dict)
    made: int = 0
    bad: set[str] = field(default_factory=set)  # jobs on whose runs it fails
    refused: set[str] = field(default_factory=set)  # jobs of which it takes no run

    def begin(self, run: Run) -> Begun:
        """Find or create the run by its id."""
        self.trouble("begin")
        self._must_be_well(run.job)
        if run.job in self.refused:
            raise RunRefusedError(f"the experiment of {run.job} was deleted")
        ref = next((ref for ref, known in self.runs.items() if known.id == run.id), None)
        if ref is None:
            self.made += 1
            ref = f"run{self.made}"
            self.runs[ref], self.rows[ref] = run, []
        logged: dict[str, Counter[int]] = {}
        for point in self.rows[ref]:
            logged.setdefault(point.name, Counter())[point.step] += 1
        self.trouble("begun")
        return Begun(ref, f"memory:{ref}", logged)

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """Store the whole state."""
        self.trouble("tell")
        self._must_be(ref)
        self._must_be_well(run.job)
        self.runs[ref] = run
        self.trouble("told")

    def log(self, ref: str, sent: Sequence[RunPoint], mark: str) -> str:
        """Append rows; on a failure only half of them may arrive."""
        self.trouble("log")
        self._must_be(ref)
        for half in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
            named = [replace(point, name=self.named(point.name)) for point in half]
            self.rows[ref] += [point for point in named if repr(point) not in set(map(repr, self.rows[ref]))]
            self.trouble("logged")
            self._must_be_well(self.runs[ref].job)
        return mark

    def named(self, metric: str) -> str:
        """Like MLflow, it does not take every name."""
        return metric.replace("@", "_at_")

    def keep(self, ref: str, path: str, source: Path) -> None:
        """Only check that the run exists."""
        self._must_be(ref)

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """Nothing to finish."""
        self._must_be(ref)
        self._must_be_well(run.job)

    def holds(self, ref: str) -> bool:
        """Whether the run was not wiped."""
        self.trouble("holds")
        if ref in self.runs:
            self._must_be_well(self.runs[ref].job)
        return ref in self.runs

    def close(self) -> None:
        """Nothing to close."""

    def wipe(self) -> None:
        """Delete all runs."""
        self.runs.clear()
        self.rows.clear()

    def _must_be_well(self, job: str) -> None:
        if job in self.bad:
            raise RunTroubledError(f"fell over the run of {job}")

    def _must_be(self, ref: str) -> None:
        if ref not in self.runs:
            raise RunGoneError(f"no run {ref}")
