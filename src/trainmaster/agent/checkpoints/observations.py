"""Which candidates for checkpoints are complete, by what scans have seen of them.

A single file is complete if
- it was renamed into place and not written since (inotify events, `rename_events`), or
- its format proves a private copy of it (`files.formats`), or
- two scans at least half a second apart, while the ranks ran, saw the same device, inode, size and modification time, and no
  rank had it open or mapped at the second scan. The open files are listed before each scan, so its writer had closed it,
  unless that was a process below a rank and has ended (`processes.abandoned`): then the scans prove nothing.
  If a gang writes into one directory, every rank is checked. If some ranks cannot be checked (another machine, a dead
  rank), the file must be unchanged for much longer, and only a format with checksums proves anything.

A directory, or the files of one step, are complete if they were renamed into place as a directory, or if two scans saw them
and their listing equal as above, or if the format proves every file and the names, without digits, equal those of the
checkpoint before. A candidate must be unchanged for much longer in these cases, because a program may pause between files:
- it lacks names that the checkpoint before had;
- it is the first one, so nothing says yet which files belong to it (until a later one has begun, all ranks succeeded, or
  the program wrote a pointer to it, see `pointers`);
- it is being overwritten, and some file is still the old one (likewise).

If the program renamed a match `step20-tmp` to the match `step20`, what ends in `-tmp` is no candidate from then on: it is
renamed when it is complete, however long the program pauses before that. The manifests of later checkpoints say so, for the
next attempt.

A program may keep the newest under the lowest number, and rename the others at each save: `checkpoint1.pt` to `checkpoint2.pt`
(DeepChem). What was under another number of the same name shows it. Or it leaves a number as it is, `ckpt_0.pt`, while its
steps go on. From then on the numbers are no steps, also in the next attempt, and what is in the store under another number is
not stored again. But if the pattern says `{step}`, or a restart passes the number to the program, it stays.

After all ranks have succeeded, and no process of theirs had to be killed, nothing writes any more: every candidate is
complete, except for what a role or a command beside them had open when it was told to end. If they were stopped, and all
exited 0 in the grace period, this is so except for what was open when they were told to, and for several files of which
nothing says yet that they are all. After any other end no new evidence comes from scans: a candidate counts if two scans
before the end saw it equal and closed and it has not changed since, or by renames and format proofs. A file that is certainly
torn is never complete, nor is an empty one. A copy is dropped if its source changed while it was copied. A lost race costs a
copy, but it never produces a wrong checkpoint.
"""

from __future__ import annotations

import os
import re
import time

from trainmaster.agent.processes.abandoned import Abandoned

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Dict, FrozenSet, List, Optional, Set, Tuple

    from trainmaster.agent.checkpoints.candidate_files import Candidate, Shape, State
    from trainmaster.agent.checkpoints.rename_events import Renames
    from trainmaster.agent.files.globs import Glob, Signature

QUIET_S = 0.5  # between two scans that prove a file finished
_LACKING_QUIET_S = 20.0  # if names of the previous checkpoint are missing, or may be
_MARKS = ("-", "_", ".", "~", "#")  # an end of a name begins with one
_NEWEST = ("best", "final", "last", "latest", "newest")  # the end of a whole checkpoint until there is a newer one
_DIGITS = re.compile(r"\d+")
_FRESH_NS = 20_000_000  # a modification this recent may have the same time stamp as the next one


class Writers:
    """What one scan knows of the processes that may write.

    `open_files`: (device, inode) of the files that the ranks had open before the scan. `running`: some rank was still alive
    after that (the unfinished files of a dead rank look closed). `complete`: `open_files` covers all ranks of the gang.
    """

    def __init__(self, running: bool, open_files: AbstractSet[Tuple[int, int]], complete: bool) -> None:
        self.running = running
        self.open_files = open_files
        self.complete = complete

    def hold(self, candidate: Candidate) -> bool:
        """Whether one of them has a file of the candidate open."""
        return any(signed[:2] in self.open_files for _, signed in candidate.state)


class _Sighting:
    """A state that scans have seen unchanged."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.state = candidate.state
        self.first_s = time.monotonic()
        self.looks = 0  # scans while the ranks ran
        self.closed = False  # a later scan, while the ranks ran, found it open in none of them


class _Known:
    """What is known of one candidate: states that it had."""

    def __init__(self) -> None:
        self.sighting: Optional[_Sighting] = None  # the one that the last scan saw
        self.committed: Optional[State] = None
        self.before: Optional[State] = None  # the last complete one, by our rules or because the program replaced it
        self.unproven: Optional[State] = None  # the format gave no proof: not tried again until it changes
        self.torn: Optional[State] = None  # proven torn: not complete until it changes
        self.grown: Set[str] = set()  # files that became longer between two scans
        self.output_at: Optional[int] = None  # the step of the output when it was last saved
        self.rises = 0  # how often that was higher than at the save before


class Observations:
    """Of all candidates, by key. In each scan, call `begin_scan`, and then `evidence` for each candidate."""

    def __init__(self, work: str, takes_numbers: bool = False) -> None:
        """`takes_numbers`: a restart passes the number of a checkpoint's name to the program."""
        self._work = work
        self._takes_numbers = takes_numbers
        self._known: Dict[str, _Known] = {}
        self._shape: Optional[Shape] = None  # of the last complete checkpoint with several files
        self._renames: Optional[Renames] = None
        self._unnumbered = False  # the numbers of names are no steps
        self.abandoned = Abandoned()  # told before each scan
        self.finished = False  # all ranks exited 0 and none of their processes is left: nothing writes any more
        self.stopped = False  # because they were told to end: what they had begun before may be unfinished

    @property
    def any(self) -> bool:
        """Whether there was a candidate so far."""
        return bool(self._known)

    def committed(self, candidate: Candidate) -> bool:
        """Whether it is in the store, as it is."""
        known = self._known.get(candidate.key)
        return known is not None and known.committed == candidate.state

    def sighted(self, candidate: Candidate) -> bool:
        """Whether a scan has seen it."""
        known = self._known.get(candidate.key)
        return known is not None and known.sighting is not None

    def commit(self, candidate: Candidate) -> None:
        """It is in the store, as it is."""
        known = self._known.setdefault(candidate.key, _Known())
        known.committed = known.before = candidate.state
        if candidate.many:
            self._shape = None if candidate.mixed else candidate.shape

    def complete_from_before(self, candidate: Candidate) -> None:
        """It was complete before this attempt began, but is not in the store."""
        self._look(candidate, Writers(True, frozenset(), True), False).closed = True
        self._shape = candidate.shape if candidate.many and not candidate.mixed else None

    def not_proven(self, candidate: Candidate, torn: bool) -> None:
        """A copy of it was examined, and is torn, or at least not proven to be complete."""
        known = self._known.setdefault(candidate.key, _Known())
        if torn:
            known.torn = candidate.state
        else:
            known.unproven = candidate.state

    def begin_scan(self, glob: Glob, found: List[Candidate], exist: AbstractSet[str]) -> List[Candidate]:
        """Take the renames since the last scan, and forget candidates whose key is not in `exist`.

        Returns the candidates: without steps and oldest first if their numbers are no steps.
        """
        if self._renames is None:
            from trainmaster.agent.checkpoints.rename_events import Renames  # noqa: PLC0415  # ctypes: slow to import

            self._renames = Renames()
        self._renames.drain()
        self._renames.watch(glob.prefix)
        for directory in {os.path.dirname(os.path.join(glob.root, root)) for each in found for root in each.roots}:
            self._renames.watch(directory)
        self._learn_temporary(glob, found, self._renames.shortened)
        self._take_shifted(glob, found)
        for key, known in [(key, known) for key, known in self._known.items() if key not in exist]:
            if known.sighting is not None:
                self._replaced(known, known.sighting)
                del self._known[key]
        return sorted((one._replace(step=None) for one in found), key=lambda one: one.order) if self._unnumbered else found

    def numbers_are_no_steps(self, glob: Glob) -> None:
        """The numbers of names are no steps, unless the user or the program says so."""
        self._unnumbered = not (glob.has_step or self._takes_numbers)

    def numbered(self, glob: Glob, candidate: Candidate, output_at: Optional[int]) -> Candidate:
        """The candidate, which was saved at this step of the output: without a step if its number stays the same."""
        known = self._known.setdefault(candidate.key, _Known())
        if output_at is not None:
            known.rises += known.output_at is not None and output_at > known.output_at
            known.output_at = output_at
        if known.rises > 1 and not self._unnumbered:
            from trainmaster.agent.files.path_steps import named_in_words  # noqa: PLC0415  # loaded with the glob

            if not named_in_words(candidate.key):
                self.numbers_are_no_steps(glob)
        return candidate._replace(step=None) if self._unnumbered else candidate

    def _take_shifted(self, glob: Glob, found: List[Candidate]) -> None:
        """Of matches that were renamed from number to number: that they are, and that what is in the store still is."""
        states = {one.key: one.state for one in found}
        before = {
            _signatures(state): (key, state is known.committed)
            for key, known in self._known.items()
            for state in (known.sighting.state if known.sighting is not None else None, known.committed)
            if state is not None and state != states.get(key)
        }
        for one in found:
            key, stored = before.get(_signatures(one.state), (one.key, False))
            if key == one.key or _DIGITS.sub("#", key) != _DIGITS.sub("#", one.key):
                continue
            if one.step is not None and glob.step(key) not in (None, one.step):
                self.numbers_are_no_steps(glob)
            if self._unnumbered and stored:
                self.commit(one)

    def _learn_temporary(self, glob: Glob, found: List[Candidate], shortened: Dict[str, str]) -> None:
        """Of matches that were renamed: what is no candidate until it is renamed too."""
        for one in found:
            for root in one.roots:
                suffix = shortened.pop(os.path.join(glob.root, root), "")
                known = self._known.get(one.key if glob.has_step else f"{root}{suffix}")
                before = known.committed if known is not None and known.committed is not None else ()
                was_whole = {signed for _, signed in before} == {signed for _, signed in one.state}  # as `step20-best`
                if suffix[:1] in _MARKS and not was_whole and not any(word in suffix.lower() for word in _NEWEST):
                    glob.learn_temporary(suffix)

    def close(self) -> None:
        """Release the inotify watches."""
        if self._renames is not None:
            self._renames.close()

    def evidence(self, glob: Glob, candidate: Candidate, newest: bool, writers: Writers) -> Optional[str]:
        """ "renamed" or "seen" (may be copied as it is), "format" (the copy must be proven), or None: not yet complete."""
        is_open = writers.hold(candidate)
        sighting = self._look(candidate, writers, is_open)
        known, state = self._known[candidate.key], candidate.state
        if state in (known.committed, known.torn):
            return None
        if not is_open and self._renamed(candidate):
            return "renamed"
        lacking = self._may_lack(glob, candidate, newest)
        if self.finished and not is_open and not lacking and not self._abandoned(candidate):
            return "seen"
        # If it is still open or was just written, only a format with checksums can detect a copy of two states.
        moving = is_open or (writers.running and any(0 <= time.time_ns() - signed[3] < _FRESH_NS for _, signed in state))
        needed_s = _LACKING_QUIET_S if lacking or not writers.complete else QUIET_S if writers.running else 0.0
        if not moving and sighting.closed and time.monotonic() - sighting.first_s >= needed_s:
            return "seen"
        provable = known.unproven != state and (not candidate.many or candidate.shape == self._shape)
        return "format" if provable and self._plausible(candidate, moving or not writers.complete) else None

    def lacks(self, candidate: Candidate, open_files: Optional[AbstractSet[Tuple[int, int]]]) -> str:
        """Why it does not count as complete. `open_files`: see `Writers`; None: nothing will be written any more."""
        known = self._known.get(candidate.key)
        if known is not None and known.torn == candidate.state:
            return "it is cut short, by its format"
        if self._abandoned(candidate):
            return "what wrote it ended before it was seen closed; write it under another name and rename it when it is done"
        if self.finished and not self.stopped:
            return "it has fewer files than the one before"
        from trainmaster.agent.checkpoints.pattern_advice import unsettled  # noqa: PLC0415  # loaded with the glob

        held = None if open_files is None else [path for path, signed in candidate.state if signed[:2] in open_files]
        return unsettled(self._work, candidate, held, known.grown if known is not None else frozenset())

    def _may_lack(self, glob: Glob, candidate: Candidate, newest: bool) -> bool:
        """Whether some of its files may still be missing, although all that are there are closed."""
        if not candidate.many:
            return False
        if self._shape is not None and not self._shape <= candidate.shape:
            return True
        if (self.finished and not self.stopped) or not newest:
            return False
        # Without a previous one, its files are not known. If it is being overwritten, some files may be the old ones.
        before = self._known[candidate.key].before or ()
        unknown = self._shape is None or not set(candidate.state).isdisjoint(before)
        return unknown and not _pointed(glob, candidate)

    def _look(self, candidate: Candidate, writers: Writers, is_open: bool) -> _Sighting:
        known = self._known.setdefault(candidate.key, _Known())
        seen = known.sighting
        if seen is None or seen.state != candidate.state:
            before = {} if seen is None else dict(seen.state)
            longer = (path for path, signed in candidate.state if path in before and signed[2] > before[path][2])
            known.grown.update(longer)
            if seen is not None and not set(seen.state) <= set(candidate.state):
                self._replaced(known, seen)
            seen = known.sighting = _Sighting(candidate)
        if writers.running:
            seen.looks += 1
            all_known = writers.complete or time.monotonic() - seen.first_s >= _LACKING_QUIET_S
            seen.closed = seen.closed or (seen.looks >= 2 and not is_open and all_known and not self._abandoned(candidate))
        return seen

    def _abandoned(self, candidate: Candidate) -> bool:
        """Whether the writer of one of its files may have ended in the middle."""
        return any(self.abandoned.has(signed) for _, signed in candidate.state)

    def _replaced(self, known: _Known, seen: _Sighting) -> None:
        """It was overwritten or removed: the program treated it as complete, so its files belonged together."""
        if seen.candidate.many and seen.closed and set(seen.state).isdisjoint(known.before or ()):
            known.before = seen.state
            self._shape = self._shape or seen.candidate.shape

    def _renamed(self, candidate: Candidate) -> bool:
        """Whether inotify saw it renamed into place. In a directory, nothing may be newer than the directory's own rename."""
        if self._renames is None or len(candidate.roots) > 1 or (candidate.many and not candidate.directories):
            return False
        root = os.path.join(self._work, candidate.roots[0])
        if not self._renames.moved(root):
            return False
        if not candidate.directories:
            return True
        inside = [path for path, _ in candidate.state] + [path for path in candidate.directories if path != candidate.roots[0]]
        try:
            top = os.stat(root)
            below = [os.stat(os.path.join(self._work, path)) for path in inside]
        except OSError:
            return False
        return top.st_mtime_ns < top.st_ctime_ns and all(
            max(status.st_mtime_ns, status.st_ctime_ns) <= top.st_ctime_ns for status in below
        )

    def _plausible(self, candidate: Candidate, moving: bool) -> bool:
        """Whether it is worth to copy it for a proof by format."""
        from trainmaster.agent.files.formats import plausible  # noqa: PLC0415  # only where there is something to prove

        try:
            return all(plausible(os.path.join(self._work, path), moving) for path, _ in candidate.state)
        except OSError:
            return False


def _signatures(state: State) -> FrozenSet[Signature]:
    return frozenset(signed for _, signed in state)


def _pointed(glob: Glob, candidate: Candidate) -> bool:
    """Whether the program wrote a pointer to it after all its files."""
    from trainmaster.agent.checkpoints.pointers import names_finished  # noqa: PLC0415  # only for directories

    return names_finished(glob, candidate.roots, max(signed[3] for _, signed in candidate.state))
