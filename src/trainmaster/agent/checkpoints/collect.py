"""Collects checkpoints of a program that does not use the SDK, and commits those that are complete. Only node 0 does it.

A single file is complete if
- it was renamed into place and not written since (inotify events, `rename_events`), or
- its format proves a private copy of it (`formats`), or
- two scans at least half a second apart, while the ranks ran, saw the same device, inode, size and modification time, and no
  rank had it open or mapped at the second scan. The open files are listed before each scan, so its writer had closed it.
  If a gang writes into one directory, every rank is checked. If some ranks cannot be checked (another machine, a dead
  rank), the file must be unchanged for much longer, and only a format with checksums proves anything.

A directory, or the files of one step, are complete if they were renamed into place as a directory, or if two scans saw them
and their listing equal as above, or if the format proves every file and the names, without digits, equal those of the
checkpoint before. A candidate must be unchanged for much longer in these cases, because a program may pause between files:
- it lacks names that the checkpoint before had;
- it is the first one, so nothing says yet which files belong to it (until a later one has begun, all ranks succeeded, or
  the program wrote a pointer to it, see `pointers`);
- it is being overwritten, and some file is still the old one (likewise).

After all ranks have succeeded, and no process of theirs had to be killed, nothing writes any more: every candidate is
complete. After any other end no new evidence comes from scans: a candidate counts if two scans before the end saw it equal
and closed and it has not changed since, or by renames and format proofs. A file that is certainly torn is never complete,
nor is an empty one. A copy is dropped if its source changed while it was copied. A lost race costs a copy, but it never
produces a wrong checkpoint.
"""

from __future__ import annotations

import errno
import os
import time

from trainmaster.agent.checkpoints.unstored import Unstored, find_unstored

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, List, Optional, Set, Tuple

    from trainmaster.agent.checkpoints.candidate_files import Candidate, Shape, State
    from trainmaster.agent.checkpoints.pointers import Pointer
    from trainmaster.agent.checkpoints.rename_events import Renames
    from trainmaster.agent.checkpoints.sdk_parts import SdkParts
    from trainmaster.agent.checkpoints.unstored import UnstoredCheckpoint
    from trainmaster.agent.files.globs import Glob
    from trainmaster.agent.files.stage import Check
    from trainmaster.wire.launch import Launch

    Staged = Dict[str, Any]
    StepAt = Callable[[float], Optional[int]]  # the last step reported before a time in seconds since the epoch

QUIET_S = 0.5  # between two scans that prove a file finished
_LACKING_QUIET_S = 20.0  # if names of the previous checkpoint are missing, or may be
_FRESH_NS = 20_000_000  # a modification this recent may have the same time stamp as the next one


class _Sighting:
    """A state that scans have seen unchanged."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.state = candidate.state
        self.first_s = time.monotonic()
        self.looks = 0  # scans while the ranks ran
        self.closed = False  # a later scan, while the ranks ran, found it open in none of them


class Collector:
    """Finds, judges and stages the checkpoints of one agent. Not thread-safe: only one thread at a time may call it.

    `unstored` reports checkpoints that are not in the store.
    """

    def __init__(self, launch: Launch) -> None:
        self.unstored = Unstored(launch)
        self._launch = launch
        self._glob: Optional[Glob] = None
        self._committed: Dict[str, State] = {}
        self._primed: Dict[str, State] = {}  # what was there when this attempt began
        self._left: Optional[UnstoredCheckpoint] = None  # complete at that time, and not in the store
        self._before: Dict[str, State] = {}  # the last complete state, by our rules or because the program replaced it
        self._sightings: Dict[str, _Sighting] = {}
        self._unproven: Dict[str, State] = {}  # the format gave no proof: not tried again until it changes
        self._torn: Dict[str, State] = {}  # proven torn: not complete until it changes
        self._shape: Optional[Shape] = None
        self._complete = True  # whether the open files of every rank of the gang are known
        self._there: AbstractSet[str] = frozenset()  # `_elsewhere` at the start
        self._unreadable: Set[str] = set()  # in this scan
        self._pointers: Dict[str, Pointer] = {}  # as each was last read
        self.finished = False  # all ranks succeeded and none of their processes is left: nothing writes any more
        self._counter = 0
        self._renames: Optional[Renames] = None
        self._sdk: Optional[SdkParts] = None
        self.start_early: Callable[[str], Optional[Check]] = lambda identifier: None  # starts an upload during staging

    def prime(self) -> None:
        """Treat what is there now, after the restore and before the ranks start, as committed."""
        launch = self._launch
        self._there = frozenset(self._elsewhere())
        if not launch["in_place"] and launch["attempt"] == 1 and not launch["resume"]:
            return  # a fresh work directory has no checkpoints
        self._left = find_unstored(launch)
        for candidate in self._found():
            if self._is_left(candidate):
                self._look(candidate, True, False).closed = True  # complete, but not in the store yet
                self._shape = candidate.shape if candidate.many else None
            else:
                self._commit(candidate)
        self._primed = dict(self._committed)
        if self._glob is not None:
            self._learn_pointers(self._glob)

    def _is_left(self, candidate: Candidate) -> bool:
        """Whether it is what an earlier attempt saved and could not store."""
        left = self._left
        return left is not None and (candidate.key, candidate.state) == (left.key, left.state)

    def _found(self) -> List[Candidate]:
        if not self._launch["checkpoint_path"] or self._launch["node_index"] != 0:
            return []
        from trainmaster.agent.checkpoints.candidate_files import candidates  # noqa: PLC0415  # slow: only if there is a path
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # likewise

        if self._glob is None:
            self._glob = Glob(self._launch["checkpoint_path"], self._launch["work"])
        self._unreadable.clear()
        return [self._own_part(self._glob, one) for one in candidates(self._glob, self._unread)]

    def _own_part(self, glob: Glob, candidate: Candidate) -> Candidate:
        """Of a step that an earlier attempt saved elsewhere, what this attempt saved."""
        before = self._primed.get(candidate.key)
        if not glob.has_step or before is None or candidate.state == before:
            return candidate
        from trainmaster.agent.checkpoints.candidate_files import elsewhere, excluding  # noqa: PLC0415  # loaded with the glob

        without = elsewhere(candidate, before)
        return (excluding(glob, candidate, without) if without else None) or candidate

    def _elsewhere(self) -> List[str]:
        """Matches in the private work directory of a node other than node 0: these are not collected."""
        launch = self._launch
        if launch["node_index"] == 0 or launch["in_place"] or not launch["checkpoint_path"]:
            return []
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # as in `_found`

        return Glob(launch["checkpoint_path"], launch["work"]).expand()

    def written_elsewhere(self) -> Optional[str]:
        """A match that this node's ranks wrote where nothing is collected (see `_elsewhere`); None if there is none."""
        return next((path for path in self._elsewhere() if path not in self._there), None)

    @property
    def collected(self) -> bool:
        """Whether any checkpoint was seen so far: a match of the pattern, complete or not, or one of the SDK."""
        seen = self._counter or self._committed or self._sightings or self._unreadable
        return bool(seen) or self._sdk is not None or bool(self._found())

    def advice(self) -> str:
        """What is wrong with the checkpoint pattern, by what it matches; "" if nothing shows that."""
        if self._glob is None or self._launch["node_index"] != 0:
            return ""
        from trainmaster.agent.checkpoints.pattern_advice import advice  # noqa: PLC0415  # loaded with the glob

        return advice(self._glob, self._found(), self._launch)

    def _unread(self, key: str, error: OSError) -> None:
        """Its current state is unknown: keep what was known of it."""
        self._unreadable.add(key)
        self.unstored.waits(key, str(error))

    def _commit(self, candidate: Candidate) -> None:
        self._committed[candidate.key] = self._before[candidate.key] = candidate.state
        if candidate.many:
            self._shape = candidate.shape

    def scan(
        self, step_at: StepAt, running: bool, open_files: AbstractSet[Tuple[int, int]], complete: bool = True
    ) -> List[Staged]:
        """Scan once and stage new complete checkpoints, lowest step first. Does not raise file system errors.

        `step_at` gives an approximate step to a candidate whose name has none: the last step reported before its files were
        written. `open_files`: (device, inode) of the files that the ranks have open, listed before the call. `running`: some
        rank was still alive after that (the unfinished files of a dead rank look closed). `complete`: `open_files` covers
        all ranks of the gang.
        """
        self._complete = complete
        staged = self._sdk.retry() if self._sdk is not None else []
        if self._sdk is not None:
            self._sdk.report_unfinished(now=not running)
        found = self._found()
        if self._glob is None:
            return staged
        self._watch(self._glob, found)
        self._forget({candidate.key for candidate in found} | self._unreadable)
        for candidate in found:
            evidence = self._evidence(candidate, candidate is found[-1], running, open_files)
            if evidence is not None:
                staged += self._stage(self._glob, candidate, evidence, step_at)
            elif candidate.state != self._committed.get(candidate.key):
                self.unstored.waits(candidate.key, self._lacks(candidate, open_files))
        return staged

    def report_unfinished(self) -> None:
        """Nothing will be written any more: report the newest candidate that is incomplete."""
        found = [one for one in self._found() if one.state != self._committed.get(one.key)]
        if found and found[-1].key in self._sightings:
            self.unstored.waits(found[-1].key, self._lacks(found[-1], frozenset()), now=True)

    def _lacks(self, candidate: Candidate, open_files: AbstractSet[Tuple[int, int]]) -> str:
        """Why it does not count as complete."""
        if self._torn.get(candidate.key) == candidate.state:
            return "it is cut short, by its format"
        if self.finished:
            return "it has fewer files than the one before"
        from trainmaster.agent.checkpoints.pattern_advice import unsettled  # noqa: PLC0415  # loaded with the glob

        held = [path for path, signed in candidate.state if signed[:2] in open_files]
        return unsettled(self._launch["work"], candidate, held)

    def sdk_checkpoint(self, rank: int, step: Optional[int], directory: str, ranks: str) -> List[Staged]:
        """A rank finished its `with sdk.checkpoint` block: stage what is complete now."""
        if self._sdk is None:
            from trainmaster.agent.checkpoints.sdk_parts import SdkParts  # noqa: PLC0415  # only for programs that use the SDK

            self._sdk = SdkParts(self._launch, lambda identifier: self.start_early(identifier), self.unstored)
        return self._sdk.written(rank, step, directory, ranks)

    def close(self) -> None:
        """Release the inotify watches."""
        if self._renames is not None:
            self._renames.close()

    def _watch(self, glob: Glob, found: List[Candidate]) -> None:
        if self._renames is None:
            from trainmaster.agent.checkpoints.rename_events import Renames  # noqa: PLC0415  # ctypes: slow to import

            self._renames = Renames()
        self._renames.drain()
        self._renames.watch(glob.prefix)
        for directory in {os.path.dirname(os.path.join(glob.root, root)) for each in found for root in each.roots}:
            self._renames.watch(directory)

    def _forget(self, keys: AbstractSet[str]) -> None:
        self.unstored.gone(keys)
        for key in [key for key in self._sightings if key not in keys]:
            self._done_with(self._sightings.pop(key))
            for memory in (self._committed, self._before, self._unproven, self._torn):
                memory.pop(key, None)

    def _evidence(
        self, candidate: Candidate, newest: bool, running: bool, open_files: AbstractSet[Tuple[int, int]]
    ) -> Optional[str]:
        """ "renamed" or "seen" (may be copied as it is), "format" (the copy must be proven), or None: not yet complete."""
        key, state = candidate.key, candidate.state
        is_open = any(signed[:2] in open_files for _, signed in state)
        seen = self._look(candidate, running, is_open)
        if state in (self._committed.get(key), self._torn.get(key)):
            return None
        if not is_open and self._renamed(candidate):
            return "renamed"
        if self.finished and not is_open and not self._may_lack(candidate, newest):
            return "seen"
        # If it is still open or was just written, only a format with checksums can detect a copy of two states.
        moving = is_open or (running and any(0 <= time.time_ns() - signed[3] < _FRESH_NS for _, signed in state))
        shape = candidate.shape if candidate.many else None
        needed_s = _LACKING_QUIET_S if self._may_lack(candidate, newest) or not self._complete else QUIET_S if running else 0.0
        if not moving and seen.closed and time.monotonic() - seen.first_s >= needed_s:
            return "seen"
        provable = self._unproven.get(key) != state and (shape is None or shape == self._shape)
        return "format" if provable and self._plausible(candidate, moving or not self._complete) else None

    def _may_lack(self, candidate: Candidate, newest: bool) -> bool:
        """Whether some of its files may still be missing, although all that are there are closed."""
        if not candidate.many:
            return False
        if self._shape is not None and not self._shape <= candidate.shape:
            return True
        if self.finished or not newest:
            return False
        # Without a previous one, its files are not known. If it is being overwritten, some files may be the old ones.
        unknown = self._shape is None or not set(candidate.state).isdisjoint(self._before.get(candidate.key, ()))
        return unknown and not self._pointed(candidate)

    def _pointed(self, candidate: Candidate) -> bool:
        from trainmaster.agent.checkpoints.pointers import names_finished  # noqa: PLC0415  # only for directories

        newest_ns = max(signed[3] for _, signed in candidate.state)
        return self._glob is not None and names_finished(self._glob, candidate.roots, newest_ns)

    def _look(self, candidate: Candidate, running: bool, is_open: bool) -> _Sighting:
        seen = self._sightings.get(candidate.key)
        if seen is None or seen.state != candidate.state:
            if seen is not None and not set(seen.state) <= set(candidate.state):
                self._done_with(seen)
            seen = self._sightings[candidate.key] = _Sighting(candidate)
        if running:
            seen.looks += 1
            known = self._complete or time.monotonic() - seen.first_s >= _LACKING_QUIET_S
            seen.closed = seen.closed or (seen.looks >= 2 and not is_open and known)
        return seen

    def _done_with(self, seen: _Sighting) -> None:
        """It was overwritten or removed: the program treated it as complete, so its files belonged together."""
        key, many = seen.candidate.key, seen.candidate.many
        if many and seen.closed and set(seen.state).isdisjoint(self._before.get(key, ())):
            self._before[key] = seen.state
            self._shape = self._shape or seen.candidate.shape

    def _renamed(self, candidate: Candidate) -> bool:
        """Whether inotify saw it renamed into place. In a directory, nothing may be newer than the directory's own rename."""
        work = self._launch["work"]
        if self._renames is None or len(candidate.roots) > 1 or (candidate.many and not candidate.directories):
            return False
        root = os.path.join(work, candidate.roots[0])
        if not self._renames.moved(root):
            return False
        if not candidate.directories:
            return True
        inside = [path for path, _ in candidate.state] + [path for path in candidate.directories if path != candidate.roots[0]]
        try:
            top = os.stat(root)
            below = [os.stat(os.path.join(work, path)) for path in inside]
        except OSError:
            return False
        return top.st_mtime_ns < top.st_ctime_ns and all(
            max(status.st_mtime_ns, status.st_ctime_ns) <= top.st_ctime_ns for status in below
        )

    def _plausible(self, candidate: Candidate, moving: bool) -> bool:
        """Whether it is worth to copy it for a proof by format."""
        from trainmaster.agent.checkpoints.formats import plausible  # noqa: PLC0415  # only where there is something to prove

        try:
            return all(plausible(os.path.join(self._launch["work"], path), moving) for path, _ in candidate.state)
        except OSError:
            return False

    def _stage(self, glob: Glob, candidate: Candidate, evidence: str, step_at: StepAt) -> List[Staged]:
        from trainmaster.agent.checkpoints import candidate_files, completeness, pointers  # noqa: PLC0415
        from trainmaster.agent.files import stage  # noqa: PLC0415  # hashing: only where there is something to stage
        from trainmaster.agent.files.globs import links_below  # noqa: PLC0415  # loaded with the glob

        check = completeness.CompletenessCheck(glob, candidate, evidence == "format")
        work = self._launch["work"]
        step = self._step_of(candidate, step_at)
        sources = [stage.Source(os.path.join(work, path), path, signed) for path, signed in candidate.state]
        try:
            links = tuple(links_below(work, candidate.directories))
            self._learn_pointers(glob)
            beside = pointers.entries_for(glob, self._pointers.values(), candidate.roots[0])
            content = stage.Content(
                "glob", step, candidate.step is None, 1, list(candidate.directories), sources, links, candidate.name, beside
            )
            staged = stage.stage(self._launch, self._identifier(), content, check)
        except stage.Incomplete:
            (self._torn if check.torn else self._unproven)[candidate.key] = candidate.state
            return []
        except stage.Raced:
            self.unstored.waits(candidate.key, "it changed whenever it was copied; write it under another name and rename it")
            return []
        except OSError as error:
            if error.errno != errno.ENOENT or candidate_files.again(glob, candidate) == candidate:
                self.unstored.refused(candidate, step, error)
            return []
        self._counter += 1
        self._commit(candidate)
        self.unstored.stored(candidate.key, step, candidate.step is None)
        return [staged if step is not None else {**staged, "saved_s": candidate.written_s}]

    def _step_of(self, candidate: Candidate, step_at: StepAt) -> Optional[int]:
        if candidate.step is None and self._left is not None and self._is_left(candidate):
            return self._left.step  # this attempt has printed nothing of the time at which it was saved
        return step_at(candidate.written_s) if candidate.step is None else candidate.step

    def _learn_pointers(self, glob: Glob) -> None:
        """Remember the pointers: one may be empty or away at the moment at which a checkpoint is staged."""
        from trainmaster.agent.checkpoints.pointers import pointers  # noqa: PLC0415  # loaded with the glob

        self._pointers.update((one.path, one) for one in pointers(glob, glob.expand()))

    def _identifier(self) -> str:
        """The next free id of this attempt in the store. Unfinished parts of earlier attempts are removed."""
        if self._counter == 0:
            from trainmaster.agent.files.stage import clean  # noqa: PLC0415  # loaded by the caller

            prefix = f"{self._launch['attempt']:04d}-"
            names = clean(self._launch)
            taken = [int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
            self._counter = max(taken, default=0) + 1
        return f"{self._launch['attempt']:04d}-{self._counter:05d}"
