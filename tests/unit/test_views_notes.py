"""The sentences of `tm show`: when a program is said not to load what it got back."""

import pytest

from trainmaster.model.job import Attempt, NodeRun, Outcome
from trainmaster.model.nodes import Allocation
from trainmaster.server.views import notes

DOES_NOT_LOAD = (
    "attempt 2 got its checkpoint of step 50 back and began again at step {}: "
    "the program does not load it; see checkpoint.resume_arguments"
)


def attempt(number: int, first_step: int | None, resumed: int | None = None) -> Attempt:
    """An ended attempt whose program named `first_step` first."""
    restored = None if resumed is None else "c1"
    node = NodeRun(outcome=Outcome(first_step=first_step))
    return Attempt(number, Allocation(()), 0.0, (node,), restored=restored, resumed_from_step=resumed)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (attempt(1, 1), attempt(2, 1, 50), [DOES_NOT_LOAD.format(1)]),
        (attempt(1, 0), attempt(2, 0, 50), [DOES_NOT_LOAD.format(0)]),
        (attempt(1, 10), attempt(2, 10, 50), [DOES_NOT_LOAD.format(10)]),  # prints each tenth step
        (attempt(1, 1), attempt(2, 49, 50), []),  # the step is approximate: the file was written a little earlier
        (attempt(1, 1), attempt(2, 51, 50), []),
        (attempt(1, 10), attempt(2, 10, 5), []),  # too early to tell
        (attempt(1, None), attempt(2, 1, 50), [DOES_NOT_LOAD.format(1)]),  # the first one's end was never heard of
        (attempt(1, None), attempt(2, 40, 50), []),
        (attempt(1, 1), attempt(2, None, 50), []),
        (attempt(1, 1), attempt(2, 1), []),  # nothing was put back
    ],
)
def test_a_program_that_does_not_load_its_checkpoint(first: Attempt, second: Attempt, told: list[str]) -> None:
    assert notes([first, second]) == told
