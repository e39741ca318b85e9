"""The laws of what is usual: which pauses of a program are its own, whatever it does."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.metrics.rhythm import KNOWN, LONGEST_TIMES, REMEMBERED, SHORTEST_S, USUAL_TIMES, Rhythm

GAPS = st.lists(st.floats(0.001, 1e5), min_size=1, max_size=60)


def after(gaps_s: list[float], steps: int = 1) -> Rhythm:
    it, now_s = Rhythm(), 0.0
    it.stepped(now_s)
    for gap_s in gaps_s:
        now_s += gap_s
        it.stepped(now_s, steps)
    return it


@given(GAPS)
def test_no_pause_twice_as_long_as_one_that_was_seen_is_unusual(gaps_s: list[float]) -> None:
    limit_s = after(gaps_s).limit_s
    assert (limit_s is None) == (len(gaps_s) < KNOWN)
    if limit_s is not None:
        assert limit_s >= SHORTEST_S
        assert limit_s >= LONGEST_TIMES * max(gaps_s) * (1 - 1e-6)


@given(GAPS.filter(lambda gaps: len(gaps) >= KNOWN), st.integers(1, 1000))
def test_what_is_usual_is_the_median_to_a_factor_of_the_root_of_two(gaps_s: list[float], steps: int) -> None:
    it, median_s = after(gaps_s, steps), statistics.median_low(gaps_s)
    assert it.usual_s is not None
    assert median_s / 1.42 <= it.usual_s * steps <= median_s * 1.42
    assert it.limit_s is not None
    assert it.limit_s <= max(SHORTEST_S, USUAL_TIMES * 1.42 * median_s, LONGEST_TIMES * max(gaps_s) * (1 + 1e-6))


@given(st.floats(0.002, 1000.0), st.integers(KNOWN, 3 * REMEMBERED))
def test_of_a_steady_program_it_is_exact(gap_s: float, count: int) -> None:
    it = after([gap_s] * count)
    assert it.usual_s == pytest.approx(gap_s, rel=1e-3)
    assert it.limit_s == pytest.approx(max(SHORTEST_S, USUAL_TIMES * gap_s), rel=1e-3)


def test_an_evaluation_that_is_rarer_than_what_is_remembered_stays_its_own() -> None:
    it = after([*[0.1] * 50, 700.0, *[0.1] * 20 * REMEMBERED])
    assert it.usual_s == pytest.approx(0.1)
    assert it.limit_s == 1400.0


def test_what_is_usual_follows_a_program_that_becomes_slower() -> None:
    it = after([*[0.1] * 10 * REMEMBERED, *[30.0] * 2 * REMEMBERED])
    assert it.usual_s == pytest.approx(30.0)
    assert it.limit_s == pytest.approx(300.0)


def test_steps_that_come_in_blocks_are_usual_in_blocks() -> None:
    """A program that holds its output back: a step takes a second, and none is seen for 200 s."""
    it = after([200.0] * KNOWN, steps=200)
    assert it.usual_s == pytest.approx(1.0)
    assert it.limit_s == pytest.approx(2000.0)


def test_it_takes_no_memory() -> None:
    few, many = after([1.0] * KNOWN), after([1.0, 20.0, 300.0] * 5000)
    sizes = [{name: len(value) if isinstance(value, list) else 1 for name, value in vars(one).items()} for one in (few, many)]
    assert sizes[0] == sizes[1]
