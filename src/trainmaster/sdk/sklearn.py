"""scikit-learn: `Saver(every=10)` around a loop of `partial_fit` (or of `warm_start` and a growing `n_estimators`).

A fitted estimator contains its random state, so a resumed run draws the same numbers. The estimator is saved with joblib,
which uses pickle. It is loaded only from the job's own checkpoint, whose digest was verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import joblib

from trainmaster.sdk.saver import BaseSaver

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "estimator.joblib"


class Saver(BaseSaver):
    """Checkpoints of `saver.estimator`. `restore` may replace that object by another one."""

    def __init__(self, estimator: Any, every: Optional[int] = None) -> None:
        super().__init__(every)
        self.estimator = estimator

    def write(self, directory: Path, step: int) -> None:
        """Write the estimator."""
        joblib.dump({"step": step, "estimator": self.estimator}, directory / _FILE)

    def read(self, directory: Path) -> int:
        """Load the estimator."""
        saved = joblib.load(directory / _FILE)
        self.estimator = saved["estimator"]
        return int(saved["step"])
