"""Copies small artifacts into a tracker."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from trainmaster.errors import NotFoundError
from trainmaster.model.checkpoints import Artifact
from trainmaster.ports.tracker import Mirrored, RunRefusedError, Tracker

FILE_MAX_BYTES = 10 * 1024 * 1024  # larger files stay in our own store, where `tm get` finds them
FILES_MAX = 1000  # of one job

_log = logging.getLogger("trainmaster.mirror")


class ArtifactCopier:
    """Copies missing artifacts of a run. `listed` lists a job's artifacts, `opened` opens one (NotFoundError)."""

    def __init__(
        self, listed: Callable[[str, int], list[Artifact]], opened: Callable[[str, Artifact], BinaryIO], scratch: Path
    ) -> None:
        self._listed = listed
        self._opened = opened
        self._scratch = scratch

    def __call__(self, tracker: Tracker, run: Mirrored) -> Mirrored:
        """The run with its copied artifacts; the identical object if nothing was copied."""
        kept = dict(run.kept)
        for one in self._listed(run.job, FILES_MAX):
            if one.bytes <= FILE_MAX_BYTES and kept.get(one.path) != one.digest:
                self._copy(tracker, run, one)
                kept[one.path] = one.digest
        return run if kept == dict(run.kept) else replace(run, kept=kept)

    def _copy(self, tracker: Tracker, run: Mirrored, one: Artifact) -> None:
        """Copy one file. A file that cannot be copied is skipped: it is only missing in the tracker."""
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            local = Path(directory) / (os.path.basename(one.path) or "file")
            try:
                with self._opened(run.job, one) as source, local.open("wb") as target:
                    shutil.copyfileobj(source, target)
                tracker.keep(run.ref, one.path, local)
            except (NotFoundError, RunRefusedError) as error:
                _log.warning("%s of %s is not copied: %s", one.path, run.job, error)
