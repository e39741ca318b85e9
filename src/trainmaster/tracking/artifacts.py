"""Copies small artifacts into a tracker."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from trainmaster.errors import DamagedError, NotFoundError, StoreRefusedError, StoreUnavailableError
from trainmaster.model.checkpoints import Artifact
from trainmaster.ports.tracker import NOT_COPIED, Mirrored, RunRefusedError, RunTroubledError, Tracker

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

    def __call__(self, tracker: Tracker, run: Mirrored, keep: Callable[[Mirrored], Mirrored]) -> Mirrored:
        """The run with its copied artifacts, as `keep` stored it; it does so also with those before a failure.

        Raises: RunTroubledError if the store fails: it is not the tracker's fault, and other runs continue.
        """
        kept = dict(run.kept)
        try:
            for one in self._listed(run.job, FILES_MAX):
                if one.bytes <= FILE_MAX_BYTES and kept.get(one.path) != one.digest:
                    why = self._copy(tracker, run, one)
                    kept[one.path] = NOT_COPIED + why if why else one.digest
                    if why and kept[one.path] != run.kept.get(one.path):
                        _log.warning("%s of %s is not copied: %s", one.path, run.job, why)
        finally:
            if kept != dict(run.kept):
                run = keep(replace(run, kept=kept, settled=False))
        return run

    def _copy(self, tracker: Tracker, run: Mirrored, one: Artifact) -> str:
        """Copy one file. Returns why it was skipped, or "". A skipped file is tried again when the run changes."""
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            local = Path(directory) / (os.path.basename(one.path) or "file")
            try:
                with self._opened(run.job, one) as source, local.open("wb") as target:
                    shutil.copyfileobj(source, target)
            except (NotFoundError, DamagedError) as error:
                return error.message
            except (StoreUnavailableError, StoreRefusedError) as error:
                raise RunTroubledError(error.message, error.hint) from error
            except OSError as error:  # of this file, e.g. a name that the disk does not take
                return error.strerror or type(error).__name__
            try:
                tracker.keep(run.ref, one.path, local)
            except RunRefusedError as error:
                return error.message
        return ""
