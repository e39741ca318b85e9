"""Decayed service has the same value however it is computed, live and in the simulator."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import DEFAULT
from trainmaster.scheduling.model.usage import Account, charged
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, processors

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


def test_the_simulator_keeps_the_accounts_of_all_who_ran() -> None:
    """Two that make way for others, and are charged for each of their attempts."""
    wide, narrow = ask_of(4, Shape()), ask_of(1, Shape())
    arrivals = (
        Arrival("a", 0.0, 50_000.0, wide, "vision", "ann", 60_000.0),
        Arrival("b", 1000.0, 300.0, narrow, "text", "bob", 400.0),
        Arrival("c", 2000.0, 700.0, wide, "vision", "cyd", 800.0),
    )
    replay = Replay(Trace("small", arrivals, processors(4)), POLICIES["srtf"], Settings(exact=True))
    histories = replay.run()
    assert histories["a"].preemptions == 2
    assert set(replay._scheduler.usage) == {("vision", "ann"), ("text", "bob"), ("vision", "cyd")}
    for id, member in (("a", ("vision", "ann")), ("b", ("text", "bob")), ("c", ("vision", "cyd"))):
        account, life = replay._scheduler.usage[member], histories[id]
        assert account.at_s == life.ended_s
        served = life.ran_s * life.width * DEFAULT.cpu_weight
        assert served * 2 ** (-(life.ended_s - life.submit_s) / DEFAULT.half_life_s) < account.service < served
