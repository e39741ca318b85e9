"""For every test: this folder on the path, so that `from waiting import deadline` works; fixtures live in their test files."""

import os
import signal
import sys
from pathlib import Path

# A shell that starts the tests in the background has them ignore SIGINT, and every program that they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of interpreters: each would compile what it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

sys.path.insert(0, str(Path(__file__).parent))
