"""For every test: this folder on the path, so that `from waiting import deadline` works; fixtures live in their test files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
