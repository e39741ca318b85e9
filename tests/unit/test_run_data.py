"""Parameters and tags that a program logs: from an agent's report to the job's record."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.cli.metrics.export import lost_work
from trainmaster.control.reports import event_of
from trainmaster.lifecycle.reports import log_run_data
from trainmaster.model.events import RunDataLogged
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt
from trainmaster.model.progress import Progress
from trainmaster.server.record.curves import Curves
from trainmaster.server.views.event_text import sentence
from trainmaster.server.views.resources import last_step
from trainmaster.store.codec import dump, load_event
from trainmaster.testing import builders

KEY = AgentKey("digits-1", 1, 0)


class Attempts:
    """An event store, as far as `Curves` reads it."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts

    def attempts(self, job: str) -> Sequence[Attempt]:
        return self._attempts


NAMES = st.sampled_from(["lr", "batch", "who"])
PARAMS = st.dictionaries(NAMES, st.text(max_size=3), max_size=3)
TAGS = st.dictionaries(NAMES, st.none() | st.text(max_size=3), max_size=3)


def test_a_report_is_an_event_that_can_be_read_again() -> None:
    event = event_of(KEY, {"kind": "run", "n": 4, "params": {"lr": "0.1"}, "tags": {"who": None}, "prefixes": {"fold": "run"}})
    assert event == RunDataLogged(1, 0, {"lr": "0.1"}, {"who": None}, 4, {"fold": "run"})
    assert load_event("RunDataLogged", dump(event)) == event
    older = event_of(KEY, {"kind": "run", "n": 4, "params": {}, "tags": {}})
    assert older == RunDataLogged(1, 0, {}, {}, 4)


def test_the_steps_of_a_further_run_are_not_lost_work() -> None:
    """The values of a nested run, the only record of it, were hidden because the job's own run began again before them."""
    event = RunDataLogged(1, 0, {}, {}, 1, {"trial": "run", "model": "model"})
    assert sentence(event) == "logged 1 further run (trial) and 1 model (model)"
    job, _ = log_run_data(builders.placed(builders.job()), event, 1.0)
    assert job.own_counts == {"trial"}
    assert job.attempt is not None
    first = replace(job.attempt, ended_s=9.0, progress=Progress((1, 2, 3), 30))
    again = replace(job, attempt=replace(first, number=2, progress=Progress((1, 2), 2)))
    points = {"loss": (500, 0.5, 10.0), "trial/acc": (3, 0.5, 20.0)}
    assert last_step(job, points) == 500, "the step of a nested run is not the job's"
    points["system/cpu_utilization_percentage"] = (12, 50.0, 30.0)
    assert last_step(job, points) == 500, "MLflow counts its samples of the machine"
    curves = Curves(Attempts([first]), None)  # type: ignore[arg-type]
    assert [curves.lost_of(again, name) for name in ("loss", "trial", "model/loss", "trial/loss")] == [*[((2, 1),)] * 3, ()]
    told = {"metrics": {}, "lost_work": [[2, 1]], "own_counts": ["trial"]}
    assert [lost_work(told, name, {1: 1}) for name in ("loss", "trial/loss")] == [((2, 1),), ()]


@pytest.mark.parametrize(
    ("told", "step"),
    [
        ({"loss": (3000, 0.5, 110.0), "val_acc": (3, 0.5, 120.0)}, 3000),  # by batch, and by epoch
        ({"loss": (2500, 0.5, 110.0), "lr": (3000, 0.1, 90.0)}, 2500),  # an earlier attempt came further
        ({"loss": (3000, 0.5, 90.0), "val_acc": (3, 0.5, 95.0)}, 3000),  # this attempt has told nothing yet
        ({"loss": (3000, 0.5, 90.0), "acc": (0, 0.5, 110.0)}, 3000),  # without a step
        ({"acc": (0, 0.5, 110.0), "lr": (None, 0.5, 110.0)}, 0),
    ],
)
def test_the_step_of_a_job_is_the_highest_of_its_attempt(told: dict[str, tuple[int | None, float, float]], step: int) -> None:
    """It was that of whichever metric came last: 3 after each epoch, and for good once the job had ended."""
    job = builders.placed(builders.job())
    assert job.attempt is not None
    again = replace(job.attempt, number=2, started_s=100.0, restored="a checkpoint")
    assert last_step(replace(job, attempt=again), told) == step


@pytest.mark.parametrize(("fresh", "step"), [({}, None), ({"acc": (0, 0.5, 110.0)}, 0), ({"loss": (1, 0.5, 110.0)}, 1)])
def test_an_attempt_that_began_again_has_only_its_own_steps(fresh: dict[str, tuple[int, float, float]], step: int | None) -> None:
    """Beside a killed attempt's value of step 7, the first of the new one, of step 0, was not shown."""
    job = builders.placed(builders.job())
    assert job.attempt is not None
    told = {"loss": (7, 0.5, 90.0), "val_loss": (7, 0.5, 90.0), **fresh}
    assert last_step(replace(job, attempt=replace(job.attempt, number=2, started_s=100.0)), told) == step


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
