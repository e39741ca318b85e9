"""The clock of decisions never runs backwards, whatever becomes of the wall clock."""

import time

import pytest

from trainmaster.control.clock import SteadyClock


def test_it_starts_at_the_wall_clock_and_runs_with_the_monotonic_one() -> None:
    before_s = time.time()
    clock = SteadyClock(0.0)
    readings = [clock.now_s() for _ in range(1000)]
    assert before_s - 0.001 <= readings[0] <= time.time() + 0.001
    assert readings == sorted(readings)


def test_it_starts_no_earlier_than_what_is_on_record() -> None:
    """The machine came up with its clock a day behind: recorded times stay in the past."""
    recorded_s = time.time() + 86_400.0
    clock = SteadyClock(recorded_s)
    assert recorded_s <= clock.now_s() < recorded_s + 5.0


@pytest.mark.parametrize("jump_s", [-86_400.0, -1.0, 0.0, 1.0, 86_400.0])
def test_a_wall_clock_that_jumps_moves_nothing(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock(0.0)
    first_s, wall_s = clock.now_s(), time.time()
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    assert first_s <= clock.now_s() < first_s + 5.0
    again = SteadyClock(clock.now_s())  # a restart after the jump
    assert again.now_s() >= clock.now_s() - 0.001
