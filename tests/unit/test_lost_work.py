"""From which step on work is lost, as one metric counts."""

import pytest

from trainmaster.recovery.lost_work import of_metric


@pytest.mark.parametrize(
    ("firsts", "lost", "own"),
    [
        pytest.param({1: 10, 2: 710}, [(2, 701)], ((2, 701),), id="the same count"),
        pytest.param({1: 10, 2: 710}, [(2, 8)], ((2, 710),), id="attempt 2 began at epoch 8"),
        pytest.param({1: 51_200, 2: 153_600}, [(2, 3)], ((2, 153_600),), id="samples, after two epochs"),
        pytest.param({1: 100, 2: 100}, [(2, 1)], ((2, 1),), id="began again, and measures each hundredth step"),
        pytest.param({1: 90, 2: 110}, [(2, 1)], ((2, 1),), id="began again, and measures by time"),
        pytest.param({1: 10}, [(2, 8)], ((2, 8),), id="attempt 2 measured nothing yet"),
        pytest.param({}, [(2, 8)], ((2, 8),), id="none has a step"),
        pytest.param({1: 10, 3: 720}, [(2, 8), (3, 9)], ((3, 720),), id="attempt 2 ended before it measured anything"),
        pytest.param({1: 1, 2: 8}, [(2, 710)], ((2, 710),), id="epochs, where attempt 2 began at a step"),
        pytest.param({1: 1, 2: 8, 3: 30}, [(2, 8), (3, 30)], ((2, 8), (3, 30)), id="three attempts of the same count"),
    ],
)
def test_a_metric_that_goes_on_far_behind_the_begin_counts_for_itself(
    firsts: dict[int, int], lost: list[tuple[int, int]], own: tuple[tuple[int, int], ...]
) -> None:
    assert of_metric(lost, firsts) == own
