"""Parameters and tags that a program logs: from an agent's report to the job's record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.control.reports import event_of
from trainmaster.lifecycle.reports import log_run_data
from trainmaster.model.events import RunDataLogged
from trainmaster.model.ids import AgentKey
from trainmaster.store.codec import dump, load_event
from trainmaster.testing import builders

KEY = AgentKey("digits-1", 1, 0)
NAMES = st.sampled_from(["lr", "batch", "who"])
PARAMS = st.dictionaries(NAMES, st.text(max_size=3), max_size=3)
TAGS = st.dictionaries(NAMES, st.none() | st.text(max_size=3), max_size=3)


def test_a_report_is_an_event_that_can_be_read_again() -> None:
    event = event_of(KEY, {"kind": "run", "n": 4, "params": {"lr": "0.1"}, "tags": {"who": None}})
    assert event == RunDataLogged(1, 0, {"lr": "0.1"}, {"who": None}, 4)
    assert load_event("RunDataLogged", dump(event)) == event


@pytest.mark.parametrize("change", [{"params": {"lr": 1}}, {"params": {"lr": None}}, {"tags": [1]}, {"tags": {"who": 2}}])
def test_a_malformed_report_is_none(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not a string|not an object"):
        event_of(KEY, {"kind": "run", "n": 1, "params": {}, "tags": {}, **change})


@given(st.lists(st.tuples(PARAMS, TAGS), max_size=6))
def test_of_a_parameter_the_first_value_stays_of_a_tag_the_last(told: list[tuple[dict[str, str], dict[str, str | None]]]) -> None:
    job = builders.placed(builders.job())
    params: dict[str, str] = {}
    tags: dict[str, str | None] = {}
    for number, (some, others) in enumerate(told):
        job, effects = log_run_data(job, RunDataLogged(1, 0, some, others, number + 1), 1.0)
        assert effects == ()
        params = {**some, **params}
        tags.update(others)
    assert job.run_params == params
    assert job.run_tags == {name: value for name, value in tags.items() if value is not None}
