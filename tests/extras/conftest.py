"""What tests of the extras share with tests/e2e: `running`, on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
