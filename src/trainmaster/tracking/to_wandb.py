"""Weights & Biases as a tracker, offline: one `offline-run-…` directory per job, for upload by `wandb sync`.

An offline run is one file, which one process writes from beginning to end and no other can continue. So points are staged as
they arrive, and the run is written once its job is over. If anything arrives later, the run is written again.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from trainmaster.ports.tracker import Begun, Run, RunPoint, RunRefusedError, TrackerUnreachableError
from trainmaster.tracking.run_directories import RunDirectories, grow, replace_file

POINTS, RUN = "points.jsonl", "run.json"
_TIMEOUT_S = 600
_WRITER = "trainmaster.tracking.wandb_run"


class WandbTracker:
    """`trainmaster.ports.tracker.Tracker`; a run's mark is the length of its staged points."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._staged = RunDirectories(directory / "staged")

    def begin(self, run: Run) -> Begun:
        """See the port."""
        return Begun(str(self._staged.begin(run)), str(self._place(run)))

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """See the port."""
        value = {**asdict(run), "status": run.status.value}
        replace_file(self._staged.open(ref) / RUN, json.dumps(value).encode())

    def log(self, ref: str, points: Sequence[RunPoint], mark: str) -> str:
        """See the port."""
        lines = "".join(json.dumps([p.name, p.step, _plain(p.value), p.time_s]) + "\n" for p in points)
        return grow(self._staged.open(ref) / POINTS, mark, lines.encode())

    def named(self, metric: str) -> str:
        """See the port."""
        return metric

    def keep(self, ref: str, path: str, source: Path) -> None:
        """See the port."""
        self._staged.keep(ref, path, source)

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """See the port. W&B's own library writes the run, in a separate process, so that it cannot block the mirror."""
        staged, place = self._staged.open(ref), self._place(run)
        self.tell(ref, run, None)
        grow(staged / POINTS, mark, b"")
        part = self._directory / f".{run.id}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        variables = {"WANDB_MODE": "offline", "WANDB_DIR": str(part), "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", _WRITER, str(staged)], env={**kept, **variables}, cwd=part, timeout=_TIMEOUT_S,
                capture_output=True, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TrackerUnreachableError(f"wandb did not write {place} within {_TIMEOUT_S} s") from None
        written = next(iter(sorted((part / "wandb").glob("offline-run-*"))), None)
        if done.returncode or written is None:
            words = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it wrote nothing"]
            raise RunRefusedError(f"wandb could not write the run: {words[0]}")
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(exist_ok=True)
        written.rename(place)
        shutil.rmtree(part, ignore_errors=True)

    def holds(self, ref: str) -> bool:
        """See the port."""
        return self._staged.holds(ref)

    def close(self) -> None:
        """See the port."""

    def _place(self, run: Run) -> Path:
        """The path that W&B itself would use."""
        begun = time.strftime("%Y%m%d_%H%M%S", time.gmtime(run.created_s))
        return self._directory / "wandb" / f"offline-run-{begun}-{run.id}"


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
