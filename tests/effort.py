"""How much a run of the suite tries: a usual run few examples, the same each time; `make nightly` many, others each time.

A run in which a law breaks by chance would be red for a change that has nothing to do with it: chance is for the nightly.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

NIGHTLY = bool(os.environ.get("TRAINMASTER_NIGHTLY"))
T = TypeVar("T")
nightly = pytest.mark.skipif(not NIGHTLY, reason="long: make nightly")


def examples(usual: int, nightly: int) -> int:
    """How many examples, seeds or histories to play in this run."""
    return nightly if NIGHTLY else usual


def cases(usual: Sequence[T], nightly: Sequence[T]) -> Sequence[T]:
    """The cases of a test in this run. The usual ones are among the nightly's."""
    assert all(case in nightly for case in usual), "a case is spelled as it no longer is"
    return nightly if NIGHTLY else usual


def set_hypothesis() -> None:
    """The defaults of every property in the suite: no limit of time for one example, and chance in the nightly alone."""
    settings.register_profile("usual", derandomize=True, deadline=None)
    settings.register_profile("nightly", deadline=None, print_blob=True)
    settings.load_profile("nightly" if NIGHTLY else "usual")
