"""Collects checkpoints of a program that does not use the SDK, and commits those that are complete. Only node 0 does it.

`observations` has the rules. A copy is dropped if its source changed while it was copied. A lost race costs a copy, but it
never produces a wrong checkpoint.
"""

from __future__ import annotations

import errno
import os

from trainmaster.agent.checkpoints.matches import Matches
from trainmaster.agent.checkpoints.observations import Observations, Writers
from trainmaster.agent.checkpoints.unstored import Unstored, find_unstored
from trainmaster.wire.names import checkpoint_prefix

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, List, Optional, Tuple

    from trainmaster.agent.checkpoints.candidate_files import Candidate, State
    from trainmaster.agent.checkpoints.sdk_parts import SdkParts
    from trainmaster.agent.checkpoints.unstored import UnstoredCheckpoint
    from trainmaster.agent.files.globs import Glob
    from trainmaster.agent.files.stage import Check
    from trainmaster.wire.launch import Launch

    Staged = Dict[str, Any]
    StepAt = Callable[[float], Optional[int]]  # the last step reported before a time in seconds since the epoch


class Collector:
    """Finds, judges and stages the checkpoints of one agent. Not thread-safe: only one thread at a time may call it.

    `unstored` reports checkpoints that are not in the store.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.unstored = Unstored(launch)
        self.matches = Matches(launch, self.unstored.waits)
        self.observations = Observations(launch["work"], "{step}" in (launch["resume_arguments"] or ""))
        self._left: Optional[UnstoredCheckpoint] = None  # complete when this attempt began, and not in the store
        self._refused: Optional[State] = None  # of the last one that was complete and could not be stored
        self._counter = 0
        self._sdk: Optional[SdkParts] = None
        self.start_early: Callable[[str], Optional[Check]] = lambda identifier: None  # starts an upload during staging

    def prime(self) -> None:
        """Treat what is there now, after the restore and before the ranks start, as committed. Raises: OSError."""
        launch = self._launch
        if launch["in_place"]:
            from trainmaster.agent.checkpoints.set_aside import note_before  # noqa: PLC0415  # few jobs run in place

            note_before(launch)
        self.matches.note_elsewhere()
        if not launch["in_place"] and launch["attempt"] == 1 and not launch["resume"]:
            return  # a fresh work directory has no checkpoints
        from trainmaster.agent.checkpoints.restore_files import retried  # noqa: PLC0415  # loaded by the restore

        self._left = retried(lambda: find_unstored(launch), lambda text: None)
        for candidate in self.matches.candidates():
            if self._is_left(candidate):
                self.observations.complete_from_before(candidate)
            else:
                self.observations.commit(candidate)
                self.matches.was_there(candidate)
        if self.matches.glob is not None:
            self.matches.learn_pointers(self.matches.glob)
            if self.matches.learn_stored(self.matches.glob):
                self.observations.numbers_are_no_steps(self.matches.glob)

    def _is_left(self, candidate: Candidate) -> bool:
        """Whether it is what an earlier attempt saved and could not store."""
        left = self._left
        return left is not None and (candidate.key, candidate.state) == (left.key, left.state)

    @property
    def count(self) -> int:
        """The number of the newest checkpoint that the pattern found in this attempt."""
        return self._counter

    @property
    def collected(self) -> bool:
        """Whether any checkpoint was seen so far: a match of the pattern, complete or not, or one of the SDK."""
        seen = self._counter or self.observations.any or self.matches.unreadable
        return bool(seen) or self._sdk is not None or bool(self.matches.candidates())

    def scan(
        self, step_at: StepAt, running: bool, open_files: AbstractSet[Tuple[int, int]], complete: bool = True
    ) -> List[Staged]:
        """Scan once and stage new complete checkpoints, lowest step first. Does not raise file system errors.

        `step_at` gives an approximate step to a candidate whose name has none: the last step reported before its files were
        written. The rest: see `Writers`.
        """
        staged = self._sdk.retry() if self._sdk is not None else []
        if self._sdk is not None:
            self._sdk.report_unfinished(now=not running)
        found, glob = self.matches.candidates(), self.matches.glob
        if glob is None:
            return staged
        writers = Writers(running, open_files, complete)
        exist = {candidate.key for candidate in found} | self.matches.unreadable
        self.unstored.gone(exist)
        found = self.observations.begin_scan(glob, found, exist)
        for candidate in found:
            evidence = self.observations.evidence(glob, candidate, candidate is found[-1], writers)
            if evidence is not None:
                staged += self._stage(glob, candidate, evidence, step_at)
            elif not self.observations.committed(candidate):
                self.unstored.waits(candidate.key, self.observations.lacks(candidate, open_files))
        return staged

    def report_unfinished(self) -> None:
        """Nothing will be written any more: report the newest candidate that is incomplete."""
        found = [one for one in self.matches.candidates() if not self.observations.committed(one)]
        if found and found[-1].state != self._refused and self.observations.sighted(found[-1]):
            self.unstored.waits(found[-1].key, self.observations.lacks(found[-1], None), now=True)

    def sdk_checkpoint(self, rank: int, step: Optional[int], directory: str, ranks: str) -> List[Staged]:
        """A rank finished its `with sdk.checkpoint` block: stage what is complete now."""
        if self._sdk is None:
            from trainmaster.agent.checkpoints.sdk_parts import SdkParts  # noqa: PLC0415  # only for programs that use the SDK

            self._sdk = SdkParts(self._launch, lambda identifier: self.start_early(identifier), self.unstored)
        return self._sdk.written(rank, step, directory, ranks)

    def close(self) -> None:
        """Release the inotify watches."""
        self.observations.close()

    def _stage(self, glob: Glob, candidate: Candidate, evidence: str, step_at: StepAt) -> List[Staged]:
        from trainmaster.agent.checkpoints import candidate_files, completeness  # noqa: PLC0415
        from trainmaster.agent.files import stage  # noqa: PLC0415  # hashing: only where there is something to stage
        from trainmaster.agent.files.globs import links_below  # noqa: PLC0415  # loaded with the glob

        candidate = self.observations.numbered(glob, candidate, step_at(candidate.written_s))
        check = completeness.CompletenessCheck(glob, candidate, evidence == "format")
        work = self._launch["work"]
        step = self._step_of(candidate, step_at)
        behind = candidate_files.Behind(work, candidate)
        files = (*candidate.state, *((path, None) for path in candidate.logs))
        sources = {behind.path(path): (os.path.join(work, path), signed) for path, signed in files}
        try:
            links = tuple((behind.path(path), said) for path, said in links_below(work, candidate.directories))
            self.matches.learn_pointers(glob)
            beside = {**self.matches.pointers_to(glob, candidate.roots[0]), **behind.links}
            content = stage.Content(
                "glob", step, candidate.step is None, 1, sorted(set(map(behind.path, candidate.directories))),
                [stage.Source(path, name, signed) for name, (path, signed) in sources.items()], links, candidate.name, beside,
                glob.learned,
            )  # fmt: skip
            staged = stage.stage(self._launch, self._identifier(), content, check)
        except stage.Incomplete:
            self.observations.not_proven(candidate, check.torn)
            return []
        except stage.Raced:
            self.unstored.waits(candidate.key, "it changed whenever it was copied; write it under another name and rename it")
            return []
        except OSError as error:
            if error.errno != errno.ENOENT or candidate_files.again(glob, candidate) == candidate:
                self._refused = candidate.state
                self.unstored.refused(candidate, step, error)
            return []
        self._counter += 1
        self.observations.commit(candidate)
        self.unstored.staged(staged["id"], candidate.key, step, candidate)
        told = {"output_at": step_at(candidate.written_s)}
        return [{**staged, **told, **({} if step is not None else {"saved_s": candidate.written_s})}]

    def _step_of(self, candidate: Candidate, step_at: StepAt) -> Optional[int]:
        if candidate.step is None and self._left is not None and self._is_left(candidate):
            return self._left.step  # this attempt has printed nothing of the time at which it was saved
        return step_at(candidate.written_s) if candidate.step is None else candidate.step

    def _identifier(self) -> str:
        """The next free id of this attempt in the store. Unfinished parts of earlier attempts are removed."""
        prefix = checkpoint_prefix(self._launch["attempt"], self._launch["home"])
        if self._counter == 0:
            from trainmaster.agent.files.stage import clean  # noqa: PLC0415  # loaded by the caller

            names = clean(self._launch)
            taken = [int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
            self._counter = max(taken, default=0) + 1
        return f"{prefix}{self._counter:05d}"
