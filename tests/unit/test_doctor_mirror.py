"""What `tm doctor` reports about a tracker."""

import time

import pytest

from trainmaster.cli.admin.doctor import tracker_line

WELL = {"trouble": "", "since_s": None, "points": 0, "seconds": 0.0, "runs": {}}
FAILS = {"digits-3": "http://h answers 500, an error of its own"}


@pytest.mark.parametrize(
    ("state", "line", "wrong"),
    [
        ({}, "mlflow is starting", False),
        (WELL, "mlflow up to date", False),
        ({**WELL, "points": 720, "seconds": 4.0}, "mlflow 720 points (4 s) behind", False),
        ({**WELL, "behind": 2}, "mlflow 2 runs behind", False),
        ({**WELL, "points": 720, "seconds": 4.0, "behind": 1}, "mlflow 720 points (4 s) and 1 run behind", False),
        ({**WELL, "refused": 1}, "mlflow up to date, refuses 1 run (tm show names the reason)", False),
        (
            {**WELL, "points": 720, "seconds": 4.0, "trouble": "http://h cannot be reached"},
            "mlflow 720 points (4 s) behind, does not answer: http://h cannot be reached",
            True,
        ),
        ({**WELL, "runs": FAILS}, f"mlflow up to date except for digits-3, where it fails: {FAILS['digits-3']}", True),
        (
            {**WELL, "runs": {**FAILS, "digits-4": "x"}},
            f"mlflow up to date except for digits-3 and 1 more, where it fails: {FAILS['digits-3']}",
            True,
        ),
    ],
)
def test_a_tracker_in_a_line(state: dict[str, object], line: str, wrong: bool) -> None:
    assert tracker_line("mlflow", state) == (line, wrong)


def test_a_server_of_ours_that_does_not_answer_yet_is_starting() -> None:
    silent = {**WELL, "behind": 1, "trouble": "http://h cannot be reached"}
    fresh, old = ({**silent, "since_s": time.time() - ago_s} for ago_s in (5.0, 600.0))
    wrong = ("mlflow 1 run behind, does not answer: http://h cannot be reached", True)
    assert tracker_line("mlflow", fresh, ours=True) == ("mlflow is starting", False)
    assert [tracker_line("mlflow", old, ours=True), tracker_line("mlflow", fresh)] == [wrong, wrong]
