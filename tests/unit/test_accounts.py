"""What is left of service: the same however it is counted."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.scheduling.share import Account, charged
from trainmaster.scheduling.snapshot import DEFAULT

spans = st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
DECAY = log(2) / DEFAULT.half_life_s


def left(rate: float, span: tuple[float, float], at_s: float) -> float:
    """The integral of a rate that fades."""
    return rate * (exp(-DECAY * (at_s - span[1])) - exp(-DECAY * (at_s - span[0]))) / DECAY


@given(st.lists(st.tuples(st.floats(0.001, 1000), spans), max_size=10))
def test_an_account_is_the_sum_of_what_is_left_of_each_span(service: list[tuple[float, tuple[float, float]]]) -> None:
    account = Account()
    for rate, span in sorted(service, key=lambda item: item[1][1]):
        account = charged(account, rate, span, DEFAULT.half_life_s)
    expected = sum(left(rate, span, account.at_s) for rate, span in service)
    assert account.service == pytest.approx(expected, rel=1e-9, abs=1e-6)
