"""For every test: this folder on the path, so that `from waiting import deadline` works; fixtures live in their test files."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# A shell that starts the tests in the background has them ignore SIGINT, and every program that they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of interpreters: each would compile what it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What is a defect of the command line is seen as such, and not told as an answer that could not be read.
os.environ["TRAINMASTER_DEBUG"] = "1"

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402
from effort import set_hypothesis  # noqa: E402

from trainmaster import troubles  # noqa: E402
from trainmaster.client.origin import WELL_KNOWN, matching  # noqa: E402

set_hypothesis()

# A submit names those that are set and stay behind: what it says must not depend on the machine of the tests.
for name in (*(name for one in WELL_KNOWN for name in matching(one, os.environ)), "CUDA_VISIBLE_DEVICES"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def no_trouble() -> Iterator[None]:
    """What one test has a server's parts say of their trouble is nothing to the next one."""
    yield
    troubles.own.forget()
