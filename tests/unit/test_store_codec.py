"""Model values as JSON: exact, and readable across versions."""

import math

import pytest

from trainmaster.model.commands import AgentReport
from trainmaster.model.events import Waited
from trainmaster.model.job import Job
from trainmaster.model.spec import JobSpec, Origin
from trainmaster.store.codec import dump, load, load_command, load_event
from trainmaster.testing import builders


def test_canonical_form() -> None:
    assert dump(Waited('2 GPUs – "a100"\n')) == '{"reason":"2 GPUs – \\"a100\\"\\n"}'


def test_scalars_keep_their_type() -> None:
    params = {"int": 1, "float": 1.0, "true": True, "none": None, "text": "1", "big": 10**30, "inf": math.inf, "small": -0.0}
    found = load(JobSpec, dump(JobSpec("x", params=params))).params
    assert {name: repr(value) for name, value in found.items()} == {name: repr(value) for name, value in params.items()}
    assert math.isnan(float(load(JobSpec, dump(JobSpec("x", params={"nan": math.nan}))).params["nan"] or 0))


def test_bytes_that_were_no_text_do_not_stop_the_server() -> None:
    assert load(Origin, dump(Origin(variables={"PATH": "/bin:\udcff"}))) == Origin(variables={"PATH": "/bin:?"})
    report = AgentReport("digits-1.1/n0", {"last_lines": ["\udc80 ok", 1, None], "loss": math.inf})
    expected = AgentReport("digits-1.1/n0", {"last_lines": ["? ok", 1, None], "loss": math.inf})
    assert load_command("AgentReport", dump(report)) == expected
    job = builders.placed(builders.job())
    assert load(Job, dump(job)) == job


def test_other_versions_fields() -> None:
    assert load(JobSpec, '{"command": ["a", "b"], "of_the_future": 1}') == JobSpec(("a", "b"))


def test_a_job_of_an_earlier_log_keeps_its_ranks_environment() -> None:
    """Whether its spec said `ranks` was not recorded: a program that needs RANK must find it after an update, too."""
    assert load(JobSpec, '{"command": "x", "resources": {"ranks": 1}}').resources.distributed


@pytest.mark.parametrize(("kind", "text"), [("Waited", "null"), ("Waited", "{}"), ("Waited", "{"), ("Guessed", "{}")])
def test_what_is_no_event(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_event(kind, text)
