"""Contract suite for `trainmaster.ports.metric_store.MetricStore`, to subclass; `store_contract` has the other two."""

import itertools
import math
import threading
from collections.abc import Callable
from random import Random

import pytest

from trainmaster.errors import DiskFullError
from trainmaster.ports.metric_store import Arrival, HeartbeatRow, LostWork, MetricPoint, MetricStore
from trainmaster.testing.store_contract import Full

OpenMetrics = Callable[..., MetricStore]


def point(step: int | None, value: float, attempt: int = 1, rank: int = 0, time_s: float = 1.0) -> MetricPoint:
    """A point of the metric `loss` of digits-1."""
    return MetricPoint("digits-1", attempt, rank, step, "loss", value, time_s)


def beat(key: str, at_s: float = 1.0, time_s: float = 1.0) -> HeartbeatRow:
    """A heartbeat."""
    return HeartbeatRow(key, time_s, 3, 100, 0.5, at_s)


def told(n: int, step: int | None = None, at_s: float | None = None, attempt: int = 1) -> MetricPoint:
    """Point `n` of an agent: its value is its number, and it arrived 100 s late."""
    return MetricPoint("digits-1", attempt, 0, step, "loss", float(n), 1000.0, Arrival(0, n, at_s))


class MetricStoreContract:
    """Fixtures: `open_metrics(read_only=False)` -> MetricStore; `full_disk(store)`, a context with a full disk."""

    @pytest.fixture
    def metrics(self, open_metrics: OpenMetrics) -> MetricStore:
        return open_metrics()

    def test_a_curve_is_in_the_order_of_its_steps(self, metrics: MetricStore, open_metrics: OpenMetrics) -> None:
        assert metrics.series("digits-1", "loss") == []
        assert metrics.write([point(5, 0.5), point(1, 0.1), point(3, 0.3)], []) == 0
        metrics.write([point(2, 0.2), MetricPoint("digits-1", 1, 0, 2, "accuracy", 9.0, 1.0)], [])
        assert open_metrics(read_only=True).series("digits-1", "loss") == [(1, 0.1), (2, 0.2), (3, 0.3), (5, 0.5)]
        assert metrics.series("digits-1", "accuracy") == [(2, 9.0)]

    def test_all_points_in_pages(self, metrics: MetricStore, open_metrics: OpenMetrics) -> None:
        assert metrics.points("digits-1", "loss", None, 10) == []
        metrics.write([point(step, step / 10, time_s=100.0 + step) for step in range(-2, 5)], [])
        metrics.write([point(4, 9.0, attempt=2, time_s=200.0), point(0, math.nan, attempt=2, time_s=201.0, rank=0)], [])
        metrics.write([point(7, 1.0, rank=1, attempt=2), MetricPoint("digits-1", 2, 0, None, "lr", 0.5, 1.0)], [])
        reader = open_metrics(read_only=True)
        first = reader.points("digits-1", "loss", None, 3)
        assert first[:2] == [(-2, -0.2, 98.0, 1), (-1, -0.1, 99.0, 1)]
        assert (first[2][0], math.isnan(first[2][1]), first[2][2:]) == (0, True, (201.0, 2))
        assert reader.points("digits-1", "loss", 0, 3) == [(1, 0.1, 101.0, 1), (2, 0.2, 102.0, 1), (3, 0.3, 103.0, 1)]
        assert reader.points("digits-1", "loss", 3, 3) == [(4, 9.0, 200.0, 2)]
        assert reader.points("digits-1", "lr", None, 3) == [(0, 0.5, 1.0, 2)]  # numbered in order of arrival

    def test_a_restarted_step_supersedes(self, metrics: MetricStore) -> None:
        metrics.write([point(step, 1.0) for step in range(4)], [])
        metrics.write([point(2, 2.0, attempt=2), point(2, 3.0, attempt=2), point(3, 4.0, attempt=2)], [])
        assert metrics.series("digits-1", "loss") == [(0, 1.0), (1, 1.0), (2, 3.0), (3, 4.0)]

    @pytest.mark.parametrize("seed", range(20))
    def test_points_of_lost_work_are_left_out(self, metrics: MetricStore, seed: int) -> None:
        """A curve and its best are those of the points that no later attempt has begun before."""
        random = Random(seed)
        stored: dict[int, tuple[int, float]] = {}  # step -> attempt, value
        lost: list[tuple[int, int]] = []
        for attempt in range(1, random.randint(2, 5)):
            begin = random.randint(0, 60)
            told = {begin + 3 * n: float(random.randint(0, 9)) for n in range(random.randint(1, 20))}
            metrics.write([point(step, value, attempt) for step, value in told.items()], [])
            stored |= {step: (attempt, value) for step, value in told.items()}
            if attempt > 1 and random.random() < 0.8:
                lost = [*(one for one in lost if one[1] < begin), (attempt, begin)]
        gone = {step for step, (of, _) in stored.items() if any(of < attempt and step >= first for attempt, first in lost)}
        kept = [(step, stored[step][1]) for step in sorted(stored.keys() - gone)]
        assert metrics.series("digits-1", "loss", 1000, tuple(lost)) == kept
        thin = metrics.series("digits-1", "loss", 7, tuple(lost))
        assert set(thin) <= set(kept)
        assert (len(thin) <= 7, thin[0], thin[-1]) == (True, kept[0], kept[-1])
        for largest in (False, True):
            best = metrics.best("digits-1", "loss", largest, tuple(lost))
            assert best is not None
            assert best[1] == (max if largest else min)(value for _, value in kept)
        assert len(metrics.points("digits-1", "loss", None, 1000)) == len(stored)

    def test_a_metric_of_another_count_goes_on_at_its_own_step(self, metrics: MetricStore) -> None:
        """A program logs its epochs first, and then its loss by samples: attempt 2 begins at epoch 8, after 700 samples."""
        metrics.write([point(100 * n, 1.0 + abs(n - 4), 1) for n in range(1, 9)], [])
        metrics.write([point(100 * n, 1.0 + abs(n - 4), 2) for n in range(8, 11)], [])
        assert [step for step, _ in metrics.series("digits-1", "loss", 100, ((2, 8),))] == [100 * n for n in range(1, 11)]
        assert metrics.best("digits-1", "loss", False, ((2, 8),)) == (400, 1.0, 1.0)
        same_count = metrics.series("digits-1", "loss", 100, ((2, 450),))
        assert [step for step, _ in same_count] == [100, 200, 300, 400, 800, 900, 1000]

    def test_the_best_stays_with_and_without_lost_work(self, metrics: MetricStore) -> None:
        values = {step: float(step % 97) for step in range(1000)}
        metrics.write([point(step, value) for step, value in (values | {777: -5.0}).items()], [])
        metrics.write([point(step, value, 2) for step, value in (values | {333: -3.0}).items() if step < 500], [])
        assert metrics.thin("digits-1", 20, lambda name: ((2, 0),) if name == "loss" else ()) > 0
        assert metrics.best("digits-1", "loss") == (777, -5.0, 1.0)
        assert metrics.best("digits-1", "loss", False, ((2, 0),)) == (333, -3.0, 1.0)

    @pytest.mark.parametrize("stepless", [False, True])
    def test_thinning_moves_neither_a_divergence_nor_the_last_value(self, metrics: MetricStore, stepless: bool) -> None:
        values = [1 / (step + 1) if step < 503 else math.nan for step in range(900)]
        rows = [MetricPoint("digits-1", 1, 0, None if stepless else at, "loss", value, 1.0) for at, value in enumerate(values)]
        metrics.write(rows, [])
        last = None if stepless else 899
        told = metrics.divergence("digits-1", "loss", last, 2000)
        assert metrics.thin("digits-1", 20) > 0
        assert told == metrics.divergence("digits-1", "loss", last, 2000) == (503, (502, 1 / 503))

    def test_thinning_keeps_what_is_told_after_a_restart(self, metrics: MetricStore) -> None:
        metrics.write([point(step, math.nan if 490 <= step < 600 else 1.0, 1) for step in range(900)], [])
        metrics.write([MetricPoint("digits-1", 2, 0, 503, "other", 1.0, 1.0)], [])
        lost = ((2, 503),)
        for _ in range(2):
            assert metrics.last(["digits-1"], lambda _job, _name: lost)["digits-1"]["loss"][0] == 502
            assert metrics.divergence("digits-1", "loss", 502, 2000) == (490, (489, 1.0))
            metrics.thin("digits-1", 20, lambda _: lost)

    def test_a_job_may_be_restarted_very_often(self, metrics: MetricStore) -> None:
        metrics.write([point(10 * attempt + n, float(n), attempt) for attempt in range(1, 1201) for n in range(12)], [])
        lost = tuple((attempt, 10 * attempt) for attempt in range(2, 1201))
        curve = metrics.series("digits-1", "loss", 20_000, lost)
        assert (len(curve), curve[-1]) == (12_002, (12_011, 11.0))
        assert metrics.best("digits-1", "loss", True, lost) == (12_011, 11.0, 1.0)

    def test_below_the_fence_is_refused_and_counted(self, metrics: MetricStore, open_metrics: OpenMetrics) -> None:
        assert metrics.write([point(1, 1.0, attempt=2), point(2, 9.0, attempt=1)], []) == 1
        assert metrics.write([point(1, 9.0), point(1, 5.0, attempt=2)], []) == 1
        metrics.raise_fence("digits-1", 4)
        metrics.raise_fence("digits-1", 3)
        again = open_metrics()
        assert again.write([point(1, 9.0, attempt=3), MetricPoint("other-1", 1, 0, 1, "loss", 7.0, 1.0)], []) == 1
        assert again.series("digits-1", "loss") == [(1, 5.0)]
        assert again.write([point(1, 6.0, attempt=4)], []) == 0
        assert again.series("digits-1", "loss") == [(1, 6.0)]

    def test_a_heartbeat_below_the_fence_is_dropped(self, metrics: MetricStore) -> None:
        metrics.raise_fence("digits-1", 2)
        assert metrics.write([], [beat("digits-1.1/n0"), beat("digits-1.2/n0")]) == 0
        assert metrics.heartbeats("digits-1") == [beat("digits-1.2/n0")]

    def test_heartbeats_are_the_last_of_the_current_attempt(self, metrics: MetricStore) -> None:
        metrics.write([], [beat("digits-1.1/n0"), beat("digits-1.1/n1")])
        metrics.write([], [beat(f"digits-1.2/n{n}") for n in (10, 2, 0)])
        metrics.write([], [beat("digits-1.2/n2", 5.0), beat("digits-1.2/n0", 0.5)])  # the second one arrives late
        assert metrics.heartbeats("digits-1") == [beat("digits-1.2/n0"), beat("digits-1.2/n2", 5.0), beat("digits-1.2/n10")]
        metrics.write([], [beat("other-1.1/n0")])
        both = [beat("digits-1.2/n0"), beat("digits-1.2/n2", 5.0), beat("digits-1.2/n10"), beat("other-1.1/n0")]
        assert metrics.heartbeats("other-1", "digits-1") == both
        metrics.raise_fence("digits-1", 3)
        assert metrics.heartbeats("digits-1") == metrics.heartbeats("none-1") == metrics.heartbeats() == []

    def test_the_latest_is_what_came_last_whatever_the_dates_say(self, metrics: MetricStore) -> None:
        """R19: the clock was set back; both the last value and the heartbeat still advance."""
        metrics.write([point(100, 2.0, time_s=10_000.0)], [beat("digits-1.1/n0", 100.0, time_s=10_000.0)])
        metrics.write([point(200, 1.0, time_s=6_500.0)], [beat("digits-1.1/n0", 200.0, time_s=6_500.0)])
        assert metrics.last(["digits-1"]) == {"digits-1": {"loss": (200, 1.0, 6_500.0)}}
        assert [(row.at_s, row.time_s) for row in metrics.heartbeats("digits-1")] == [(200.0, 6_500.0)]

    def test_each_number_of_an_agent_is_stored_once(self, metrics: MetricStore, open_metrics: OpenMetrics) -> None:
        """R13: points that arrive twice, late, or duplicated within one group."""
        metrics.write([told(1), told(2), told(1), told(2)], [])
        assert metrics.write([told(1), told(2), told(3)], []) == 0
        again = open_metrics()
        again.write([told(2), told(3)], [])
        again.write([MetricPoint("digits-1", 1, 1, None, "loss", 7.0, 1.0, Arrival(1, 1))], [])  # the first of another agent
        assert again.series("digits-1", "loss") == [(0, 1.0), (1, 2.0), (2, 3.0)]
        again.write([told(1, attempt=2)], [])
        assert again.series("digits-1", "loss")[3:] == [(3, 1.0)]

    def test_an_agents_clock_is_mapped_once(self, metrics: MetricStore) -> None:
        """R13: the first point or heartbeat maps the agent's clock; a late request moves no point."""
        metrics.write([told(1, 1, at_s=50.0)], [])
        assert metrics.last(["digits-1"])["digits-1"]["loss"] == (1, 1.0, 1000.0)
        metrics.write([told(2, 2, at_s=55.5)], [])
        assert metrics.last(["digits-1"])["digits-1"]["loss"] == (2, 2.0, 1005.5)
        metrics.write([], [beat("digits-1.2/n0", 50.0, time_s=900.0)])
        metrics.write([told(1, 3, at_s=50.5, attempt=2)], [])
        assert metrics.last(["digits-1"])["digits-1"]["loss"] == (3, 1.0, 900.5)

    def test_holds_every_float(self, metrics: MetricStore) -> None:
        values = [math.inf, -math.inf, 0.1 + 0.2, 5e-324, -1.7976931348623157e308]
        metrics.write([*(point(step, value) for step, value in enumerate(values)), point(5, math.nan)], [])
        *found, last = metrics.series("digits-1", "loss")
        assert found == list(enumerate(values))
        assert last[0] == 5
        assert math.isnan(last[1])
        assert math.isnan(metrics.last(["digits-1"])["digits-1"]["loss"][1])

    def test_since_when_a_curve_is_not_finite(self, metrics: MetricStore) -> None:
        values = [0.5, math.nan, 0.25, math.nan, math.inf]
        metrics.write([point(step, value) for step, value in enumerate(values, start=1)], [])
        assert metrics.divergence("digits-1", "loss", 5, 9) == (4, (3, 0.25))
        assert metrics.divergence("digits-1", "loss", 5, 2) == (None, None)  # too far
        assert metrics.divergence("digits-1", "loss", 2, 9) == (2, (1, 0.5))  # later points are of an attempt before
        assert metrics.divergence("digits-1", "acc", 2, 9) == (None, None)

    def test_a_curve_without_steps_or_finite_values_that_diverges(self, metrics: MetricStore) -> None:
        metrics.write([point(None, value) for value in (1.0, math.nan, math.nan)], [])
        assert metrics.divergence("digits-1", "loss", None, 9) == (1, (0, 1.0))
        metrics.write([MetricPoint("digits-2", 1, 0, step, "loss", math.nan, 1.0) for step in (7, 8)], [])
        assert metrics.divergence("digits-2", "loss", 8, 9) == (7, None)

    def test_a_step_too_large_to_store_is_refused(self, metrics: MetricStore) -> None:
        assert metrics.write([point(2**63, 1.0), point(-(2**70), 1.0), point(2**62, 1.0)], []) == 2
        assert metrics.series("digits-1", "loss") == [(2**62, 1.0)]

    def test_points_without_a_step_are_appended(self, metrics: MetricStore) -> None:
        metrics.write([point(None, 1.0), point(None, 2.0)], [])
        metrics.write([point(None, 3.0, attempt=2, time_s=9.0)], [])
        assert metrics.series("digits-1", "loss") == [(0, 1.0), (1, 2.0), (2, 3.0)]
        assert metrics.series("digits-1", "loss", limit=2) == [(0, 1.0), (2, 3.0)]
        assert metrics.last(["digits-1"]) == {"digits-1": {"loss": (None, 3.0, 9.0)}}

    def test_what_was_measured_before_the_first_step_is_listed_and_may_be_best(
        self, metrics: MetricStore, open_metrics: OpenMetrics
    ) -> None:
        """A program evaluates before it trains: that value has no step, and the others have one."""
        metrics.write([point(None, 0.1, time_s=1.0), point(None, math.nan, time_s=2.0)], [])
        assert metrics.best("digits-1", "loss") == (0, 0.1, 1.0)
        assert metrics.stepless("digits-1", "loss", None, 9) == metrics.stepless("digits-1", "acc", None, 9) == []
        metrics.write([point(step, value) for step, value in ((1, 0.95), (2, 0.75), (3, 0.8))], [])
        metrics.write([point(None, 0.7, 2, time_s=3.0), point(3, 0.9, 2), point(None, 0.0, 2, rank=1)], [])
        reader = open_metrics(read_only=True)
        first = reader.stepless("digits-1", "loss", None, 2)
        assert [(n, math.isnan(value), *rest) for n, value, *rest in first] == [(0, False, 1.0, 1), (1, True, 2.0, 1)]
        assert reader.stepless("digits-1", "loss", 1, 2) == [(2, 0.7, 3.0, 2)]
        assert [step for step, *_ in reader.points("digits-1", "loss", None, 9)] == [1, 2, 3]
        assert reader.best("digits-1", "loss") == (None, 0.1, 1.0)
        assert reader.best("digits-1", "loss", True) == (1, 0.95, 1.0)

    def test_what_was_measured_before_the_first_step_may_be_lost(self, metrics: MetricStore) -> None:
        metrics.write([point(None, 0.1), point(1, 0.9), point(2, 0.8)], [])
        metrics.write([point(None, 0.2, attempt=2, time_s=2.0), point(2, 0.7, attempt=2)], [])
        assert metrics.best("digits-1", "loss", False, ((2, 2),)) == (None, 0.1, 1.0)  # it went on from step 1
        assert metrics.best("digits-1", "loss", False, ((2, 1),)) == (None, 0.2, 2.0)  # it began anew
        metrics.write([point(None, 0.3, attempt=3, time_s=3.0)], [])
        assert metrics.best("digits-1", "loss", False, ((3, 2),)) == (None, 0.1, 1.0)
        assert metrics.best("digits-1", "loss", False, ((3, 0),)) == (None, 0.3, 3.0)

    def test_the_lowest_rank_that_has_it(self, metrics: MetricStore) -> None:
        metrics.write([point(1, 3.0, rank=3), point(1, 2.0, rank=2)], [])
        assert metrics.series("digits-1", "loss") == [(1, 2.0)]
        metrics.write([point(1, 0.0), point(2, 2.5, rank=2, time_s=5.0)], [])
        assert metrics.series("digits-1", "loss") == [(1, 0.0)]
        assert metrics.last(["digits-1"]) == {"digits-1": {"loss": (1, 0.0, 1.0)}}

    def test_what_only_another_rank_has_told_since_a_restart_is_elsewhere(self, metrics: MetricStore) -> None:
        """Megatron prints on its last rank: with another number of ranks, values of a restart were left out without a word."""
        metrics.write([point(1, 3.0), point(2, 2.0)], [])
        assert metrics.elsewhere("digits-1") == []
        metrics.write([point(3, 1.0, attempt=2, rank=1), point(3, 9.0, attempt=2, rank=2)], [])
        assert metrics.elsewhere("digits-1") == ["loss"]
        metrics.write([point(4, 0.5, attempt=3)], [])
        assert metrics.series("digits-1", "loss") == [(1, 3.0), (2, 2.0), (4, 0.5)]
        assert metrics.elsewhere("digits-1") == ["loss"]
        assert metrics.elsewhere("digits-1", lambda _: ((3, 3),)) == [], "what the other ranks have is lost work"

    def test_what_all_ranks_tell_is_elsewhere_nowhere(self, metrics: MetricStore) -> None:
        for attempt, steps in ((1, range(1, 6)), (2, range(4, 9))):
            metrics.write([point(step, 1.0, rank=rank, attempt=attempt) for step in steps for rank in (2, 1, 0)], [])
            metrics.write([point(steps[-1] + 1, 1.0, rank=2, attempt=attempt)], [])
        assert metrics.elsewhere("digits-1") == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 10, 99, 100])
    @pytest.mark.parametrize("stride", [1, 7, 10**15])
    def test_thinned_evenly(self, metrics: MetricStore, limit: int, stride: int) -> None:
        curve = [(step * stride, float(step)) for step in range(100)]
        metrics.write([point(step, value) for step, value in curve], [])
        thin = metrics.series("digits-1", "loss", limit)
        assert limit // 2 <= len(thin) <= limit
        assert thin == sorted(set(thin) & set(curve))
        assert thin[-1] == curve[-1]
        if limit > 1:
            assert thin[0] == curve[0]
            gaps = [(b - a) / stride for (a, _), (b, _) in itertools.pairwise(thin)]
            assert max(gaps) <= 100 / (limit - 1) + 1

    def test_one_far_step_does_not_thin_out_the_rest(self, metrics: MetricStore) -> None:
        metrics.write([point(step, 1.0) for step in [*range(500), 10**15]], [])
        thin = metrics.series("digits-1", "loss", 100)
        assert 50 <= len(thin) <= 100
        assert (thin[0], thin[-1]) == ((0, 1.0), (10**15, 1.0))

    def test_last_is_the_newest_point_of_each_metric(self, metrics: MetricStore) -> None:
        metrics.write([point(1, 1.0, time_s=1.0), point(2, 2.0, time_s=2.0)], [])
        metrics.write([MetricPoint("other-1", 1, 0, 7, "accuracy", 0.5, 3.0)], [])
        assert metrics.last(["digits-1", "other-1", "none-1"]) == {
            "digits-1": {"loss": (2, 2.0, 2.0)},
            "other-1": {"accuracy": (7, 0.5, 3.0)},
        }
        metrics.write([point(1, 4.0, attempt=2, time_s=1.5)], [])
        assert metrics.last(["digits-1"]) == {"digits-1": {"loss": (1, 4.0, 1.5)}}
        assert metrics.last([]) == {}

    def test_last_is_of_the_rank_of_the_curve_in_every_attempt(self, metrics: MetricStore) -> None:
        """Another rank of the next attempt may report first, and the attempt may end before rank 0 does."""
        metrics.write([point(step, 1 / step, rank=1) for step in range(1, 101)], [])
        metrics.write([point(50, 99.0, attempt=2, rank=2)], [])
        assert metrics.last(["digits-1"])["digits-1"]["loss"][:2] == metrics.series("digits-1", "loss")[-1] == (100, 0.01)
        metrics.write([point(50, 0.5, attempt=2, rank=1), point(51, 98.0, attempt=2, rank=2)], [])
        assert metrics.last(["digits-1"])["digits-1"]["loss"][:2] == (50, 0.5)
        metrics.write([point(10, 7.0, attempt=2)], [])  # rank 0 represents the job from now on, although it came last
        assert metrics.last(["digits-1"])["digits-1"]["loss"][:2] == metrics.series("digits-1", "loss")[-1] == (10, 7.0)

    def test_last_of_a_metric_whose_newest_points_are_lost(self, metrics: MetricStore) -> None:
        """The newest attempt has measured the loss only: what an earlier one measured after its first step has no model."""
        metrics.write([point(step, float(step)) for step in range(10)], [])
        for name, steps in {"accuracy": (2, 5, 8), "late": (7, 9), "early": (3,)}.items():
            metrics.write([MetricPoint("digits-1", 1, 0, step, name, float(step), 1.0) for step in steps], [])
        metrics.write([point(step, 0.5, attempt=2) for step in (6, 7)], [])
        asked: list[tuple[str, str]] = []

        def lost_of(job: str, name: str) -> LostWork:
            asked.append((job, name))
            return ((2, 6),)

        last = {name: at[:2] for name, at in metrics.last(["digits-1"], lost_of)["digits-1"].items()}
        assert last == {"loss": (7, 0.5), "accuracy": (5, 5.0), "early": (3, 3.0)}
        assert {name for _, name in asked} == {"accuracy", "late", "early"}
        assert metrics.last(["digits-1"])["digits-1"].keys() == {"loss", "accuracy", "late", "early"}

    def test_a_full_disk_refuses_whole_and_is_got_over(self, metrics: MetricStore, full_disk: Full) -> None:
        metrics.write([point(1, 1.0)], [beat("digits-1.1/n0")])
        with full_disk(metrics):
            new = [MetricPoint("digits-1", 2, 0, step, "new", 1.0, 1.0) for step in range(50_000)]
            with pytest.raises(DiskFullError):
                metrics.write(new, [beat("digits-1.2/n0")])
            assert metrics.heartbeats("digits-1") == [beat("digits-1.1/n0")]
        assert metrics.write([point(2, 2.0), *new[:2]], []) == 0  # neither fence nor series remains of refused points
        assert metrics.series("digits-1", "loss") == [(1, 1.0), (2, 2.0)]
        assert metrics.series("digits-1", "new") == [(0, 1.0), (1, 1.0)]

    def test_threads_write_and_read_at_once(self, metrics: MetricStore) -> None:
        def write(rank: int) -> None:
            for start in range(0, 400, 20):
                metrics.write([point(step, float(step), rank=rank) for step in range(start, start + 20)], [])
                curve = metrics.series("digits-1", "loss")
                assert curve == [(step, float(step)) for step in range(len(curve))]

        failed: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                write(rank)
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert metrics.series("digits-1", "loss") == [(step, float(step)) for step in range(400)]
