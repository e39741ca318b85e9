"""Checkpoints of a program that knows nothing of us: committed when they are whole. All of it is node 0's work.

A single file is whole when
- it was renamed into place and not written to since (the kernel's notices, `rename_events`), or
- its format proves a private copy of it (`formats`), or
- two looks at least half a second apart, while the ranks ran, saw it equal (device, inode, bytes, modification time) and
  at the second no rank had it open or mapped: what is open is learned before each look, so whoever wrote it had closed it.
  Of a gang that writes into one directory every rank is asked. Where not all can be (another machine, a dead rank) it must
  hold still for far longer, and of the formats only one with checksums proves anything.

A directory, and the files of one step where several belong together, are whole when renamed into place as a directory,
or seen twice equal as above, the listing too, or when every file is proven by its format and the names are those of the
checkpoint before, digits aside. One that lacks names the one before had must hold still for far longer: a program may pause
between two files. So must, until a later one has begun or every rank has ended well, the first one (nothing says yet what
belongs to it) and one written over of which a file is still the old one.

After every rank has ended well, and nothing of theirs had to be ended, nobody writes any more: what lies there is whole.
After any other end nothing is seen for the first time: what two looks before the end saw equal, and the second one closed,
counts if it is still so, besides renames and proofs. What is certainly torn is never whole, nor is an empty
one. Every copy is dropped if its source was not equal before and after. A lost race costs a copy, never a wrong
checkpoint.
"""

from __future__ import annotations

import errno
import os
import time

from trainmaster.agent.checkpoints.unstored import Unstored, left

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before the ranks' start
if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, List, Optional, Set, Tuple

    from trainmaster.agent.checkpoints.candidate_files import Candidate, Shape, State
    from trainmaster.agent.checkpoints.rename_events import Renames
    from trainmaster.agent.checkpoints.sdk_parts import SdkParts
    from trainmaster.agent.files.globs import Glob
    from trainmaster.agent.files.stage import Check
    from trainmaster.wire.launch import Launch

    Staged = Dict[str, Any]
    StepAt = Callable[[float], Optional[int]]  # the last step named by a time in seconds since the epoch

QUIET_S = 0.5  # between two looks that prove a file finished
_LACKING_QUIET_S = 20.0  # when names are missing that the checkpoint before had, or may be
_FRESH_NS = 20_000_000  # a change this young may share its time stamp with the next one


class _Sighting:
    """A state that looks have agreed on."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.state = candidate.state
        self.first_s = time.monotonic()
        self.looks = 0  # while the ranks ran
        self.closed = False  # at a later look than the first, while the ranks ran, none of them had it open


class Collector:
    """Finds, judges and stages the checkpoints of one agent. Not thread-safe: one thread at a time calls it.

    `unstored` tells of those that are not in the store.
    """

    def __init__(self, launch: Launch) -> None:
        self.unstored = Unstored(launch)
        self._launch = launch
        self._glob: Optional[Glob] = None
        self._committed: Dict[str, State] = {}
        self._before: Dict[str, State] = {}  # what was last taken for whole, by its program perhaps
        self._sightings: Dict[str, _Sighting] = {}
        self._unproven: Dict[str, State] = {}  # no proof by format: not tried again until something changes
        self._torn: Dict[str, State] = {}  # proven torn: whole only when something changes
        self._shape: Optional[Shape] = None
        self._complete = True  # whether what every rank of the gang has open is known
        self._there: AbstractSet[str] = frozenset()  # `_elsewhere`, at the start
        self._unreadable: Set[str] = set()  # at this look
        self.finished = False  # every rank has ended well, and whatever they left by itself: nobody writes any more
        self._counter = 0
        self._renames: Optional[Renames] = None
        self._sdk: Optional[SdkParts] = None
        self.ahead: Callable[[str], Optional[Check]] = lambda identifier: None  # who is told of files while they are staged

    def prime(self) -> None:
        """Take what is there now, after the restore and before the ranks start, for committed."""
        launch = self._launch
        self._there = frozenset(self._elsewhere())
        if not launch["in_place"] and launch["attempt"] == 1 and not launch["resume"]:
            return  # laid out without any
        unstored = left(launch)
        for candidate in self._found():
            if unstored is not None and (candidate.key, candidate.state) == (unstored.key, unstored.state):
                self._look(candidate, True, False).closed = True  # whole, and still to be stored
                self._shape = candidate.shape if candidate.many else None
            else:
                self._commit(candidate)

    def _found(self) -> List[Candidate]:
        if not self._launch["checkpoint_path"] or self._launch["node_index"] != 0:
            return []
        from trainmaster.agent.checkpoints.candidate_files import candidates  # noqa: PLC0415  # not before a start that has none
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # likewise

        if self._glob is None:
            self._glob = Glob(self._launch["checkpoint_path"], self._launch["work"])
        self._unreadable.clear()
        return candidates(self._glob, self._unread)

    def _elsewhere(self) -> List[str]:
        """What matches in the work directory that a node but node 0 has for itself: nobody collects it."""
        launch = self._launch
        if launch["node_index"] == 0 or launch["in_place"] or not launch["checkpoint_path"]:
            return []
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # as in `_found`

        return Glob(launch["checkpoint_path"], launch["work"]).expand()

    def written_elsewhere(self) -> Optional[str]:
        """One that this node's ranks wrote where only those of node 0 are collected; None where there is none."""
        return next((path for path in self._elsewhere() if path not in self._there), None)

    @property
    def collected(self) -> bool:
        """Whether anything was a checkpoint so far: a match, be it whole or not, or one of the SDK."""
        seen = self._counter or self._committed or self._sightings or self._unreadable
        return bool(seen) or self._sdk is not None or bool(self._found())

    def _unread(self, key: str, error: OSError) -> None:
        """It is not known what it is now: what was known of it stays."""
        self._unreadable.add(key)
        self.unstored.waits(key, str(error))

    def _commit(self, candidate: Candidate) -> None:
        self._committed[candidate.key] = self._before[candidate.key] = candidate.state
        if candidate.many:
            self._shape = candidate.shape

    def scan(
        self, step_at: StepAt, running: bool, open_files: AbstractSet[Tuple[int, int]], complete: bool = True
    ) -> List[Staged]:
        """Look once and stage what is whole and new, lowest step first. Raises nothing for a file system's errors.

        `step_at` gives a step to what names none: approximate, the last one told before the files were written.
        `open_files`: (device, inode) of what the ranks have open, learned before the call; `running`: some rank was
        still alive after that was learned (a dead writer has nothing open, and what it left is not finished). `complete`:
        `open_files` is what all ranks of the gang have open.
        """
        self._complete = complete
        staged = self._sdk.retry() if self._sdk is not None else []
        if self._sdk is not None:
            self._sdk.tell_unfinished(now=not running)
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

    def tell_unfinished(self) -> None:
        """Nobody will finish what is not whole by now: say so of the newest."""
        found = [one for one in self._found() if one.state != self._committed.get(one.key)]
        if found and found[-1].key in self._sightings:
            self.unstored.waits(found[-1].key, self._lacks(found[-1], frozenset()), now=True)

    def _lacks(self, candidate: Candidate, open_files: AbstractSet[Tuple[int, int]]) -> str:
        """Why it does not count as whole."""
        if self._torn.get(candidate.key) == candidate.state:
            return "it is cut short, by its format"
        if any(signed[:2] in open_files for _, signed in candidate.state):
            return "the program has it open all the time; write it under another name and rename it when it is done"
        if self.finished:
            return "it has fewer files than the one before"
        return "it kept changing, or was not seen unchanged; write it under another name and rename it when it is done"

    def sdk_checkpoint(self, rank: int, step: Optional[int], directory: str, ranks: str) -> List[Staged]:
        """A rank finished its `with sdk.checkpoint` block; what is complete by that is staged."""
        if self._sdk is None:
            from trainmaster.agent.checkpoints.sdk_parts import SdkParts  # noqa: PLC0415  # only for programs that use the SDK

            self._sdk = SdkParts(self._launch, lambda identifier: self.ahead(identifier), self.unstored)
        return self._sdk.written(rank, step, directory, ranks)

    def close(self) -> None:
        """Give back the kernel's watches."""
        if self._renames is not None:
            self._renames.close()

    def _watch(self, glob: Glob, found: List[Candidate]) -> None:
        if self._renames is None:
            from trainmaster.agent.checkpoints.rename_events import Renames  # noqa: PLC0415  # ctypes: only now that the ranks are started

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
        """ "renamed", "seen" (both may be copied as they are), "format" (the copy must be proven), or None: not yet."""
        key, state = candidate.key, candidate.state
        is_open = any(signed[:2] in open_files for _, signed in state)
        seen = self._look(candidate, running, is_open)
        if state in (self._committed.get(key), self._torn.get(key)):
            return None
        if not is_open and self._renamed(candidate):
            return "renamed"
        if self.finished and not is_open and not self._may_lack(candidate, newest):
            return "seen"
        # Still open or just written, only what a checksum covers can be told from what it is about to become.
        moving = is_open or (running and any(0 <= time.time_ns() - signed[3] < _FRESH_NS for _, signed in state))
        shape = candidate.shape if candidate.many else None
        needed_s = _LACKING_QUIET_S if self._may_lack(candidate, newest) or not self._complete else QUIET_S if running else 0.0
        if not moving and seen.closed and time.monotonic() - seen.first_s >= needed_s:
            return "seen"
        provable = self._unproven.get(key) != state and (shape is None or shape == self._shape)
        return "format" if provable and self._plausible(candidate, moving or not self._complete) else None

    def _may_lack(self, candidate: Candidate, newest: bool) -> bool:
        """Whether files of it may still have to be written, though all that is there is closed."""
        if not candidate.many:
            return False
        if self._shape is not None and not self._shape <= candidate.shape:
            return True
        if self.finished or not newest:
            return False
        # Without one before nothing says what belongs to it; of one that is written over some files may be the old ones.
        return self._shape is None or not set(candidate.state).isdisjoint(self._before.get(candidate.key, ()))

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
        """It is written anew, or removed: the program took it for whole, so what it had belongs together."""
        key, many = seen.candidate.key, seen.candidate.many
        if many and seen.closed and set(seen.state).isdisjoint(self._before.get(key, ())):
            self._before[key] = seen.state
            self._shape = self._shape or seen.candidate.shape

    def _renamed(self, candidate: Candidate) -> bool:
        """By the kernel's notices; of a directory nothing may be younger than its own move."""
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
        """Whether copying it for a proof may be worth it."""
        from trainmaster.agent.checkpoints.formats import plausible  # noqa: PLC0415  # only where there is something to prove

        try:
            return all(plausible(os.path.join(self._launch["work"], path), moving) for path, _ in candidate.state)
        except OSError:
            return False

    def _stage(self, glob: Glob, candidate: Candidate, evidence: str, step_at: StepAt) -> List[Staged]:
        from trainmaster.agent.checkpoints import candidate_files, completeness  # noqa: PLC0415
        from trainmaster.agent.files import stage  # noqa: PLC0415  # hashing: only where there is something to stage
        from trainmaster.agent.files.globs import links_below  # noqa: PLC0415  # loaded with the glob

        check = completeness.Whole(glob, candidate, evidence == "format")
        work = self._launch["work"]
        step = step_at(candidate.written_s) if candidate.step is None else candidate.step
        sources = [stage.Source(os.path.join(work, path), path, signed) for path, signed in candidate.state]
        try:
            links = tuple(links_below(work, candidate.directories))
            content = stage.Content("glob", step, candidate.step is None, 1, list(candidate.directories), sources, links)
            staged = stage.stage(self._launch, self._identifier(), content, check)
        except stage.NotWhole:
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
        self.unstored.stored(candidate.key, step)
        return [staged]

    def _identifier(self) -> str:
        """The next free id of this attempt in the store. Parts that earlier attempts left half-made are removed."""
        if self._counter == 0:
            from trainmaster.agent.files.stage import clean  # noqa: PLC0415  # loaded by the caller

            prefix = f"{self._launch['attempt']:04d}-"
            names = clean(self._launch)
            taken = [int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdigit()]
            self._counter = max(taken, default=0) + 1
        return f"{self._launch['attempt']:04d}-{self._counter:05d}"
