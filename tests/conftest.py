"""For every test: this folder on the path, so that `from waiting import deadline` works; fixtures live in their test files."""

import signal
import sys
from pathlib import Path

# A shell that starts the tests in the background has them ignore SIGINT, and every program that they start would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))
