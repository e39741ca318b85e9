"""`--after`, `--begin` and `--array` as they are written."""

from datetime import datetime

import pytest

from trainmaster.client.start_options import Array, array_of, begin_of, start_of
from trainmaster.errors import UsageError

NOON = datetime(2026, 11, 25, 12, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("22:00", datetime(2026, 11, 25, 22)),
        ("8:30", datetime(2026, 11, 26, 8, 30)),  # the next one
        ("12:00", datetime(2026, 11, 26, 12)),
        ("12:00:01", datetime(2026, 11, 25, 12, 0, 1)),
        ("2026-12-24", datetime(2026, 12, 24)),
        ("2026-12-24 08:00", datetime(2026, 12, 24, 8)),
        ("2026-12-24T08:00:30", datetime(2026, 12, 24, 8, 0, 30)),
    ],
)
def test_a_time(text: str, expected: datetime) -> None:
    assert begin_of(text, NOON) == {"begin_s": expected.timestamp()}


def test_other_times() -> None:
    assert begin_of("2026-12-24T08:00:00+00:00", NOON) == {"begin_s": 1798099200.0}
    assert begin_of(5.5, NOON) == {"begin_s": 5.5}
    assert begin_of("+1h30m", NOON) == {"begin_in_s": 5400.0}


@pytest.mark.parametrize("text", ["", "tonight", "25:00", "22", "+2", "+-1h", "2h", "2026-13-01", "9" * 400])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a time|has no unit"):
        begin_of(text, NOON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3", Array((0, 1, 2, 3))),
        ("0-9%2", Array(tuple(range(10)), 2)),
        ("0-30:10", Array((0, 10, 20, 30))),
        ("7", Array((7,))),
        ("1,3,1,5-6%1", Array((1, 3, 5, 6), 1)),
    ],
)
def test_an_array(text: str, expected: Array) -> None:
    assert array_of(text) == expected


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-9%", "0-9%0", "0-9:0", "1,,2", "-1", "0-9%x", "0-99999999999"])
def test_what_is_no_array(text: str) -> None:
    with pytest.raises(UsageError, match="is not an array"):
        array_of(text)


def test_too_large_an_array_is_refused_before_it_is_made() -> None:
    with pytest.raises(UsageError, match="has more than 10,000 tasks"):
        array_of("0-999999999")
    assert len(array_of("0-9999").indices) == 10_000


def test_start_conditions_of_a_request() -> None:
    assert start_of((), None) is None
    assert start_of(("a-1", "b:any"), "+1m") == {
        "after": [{"job": "a-1", "when": "ok"}, {"job": "b", "when": "any"}], "begin_in_s": 60.0,
    }  # fmt: skip
    for text in (":ok", "a:later", "a:"):
        with pytest.raises(UsageError, match="does not say after what"):
            start_of((text,), None)
