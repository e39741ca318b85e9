"""What `checkpoint.path` matches on this node: candidates for checkpoints, pointers to them, and what nobody collects."""

from __future__ import annotations

import os

from trainmaster.wire.names import MANIFEST

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Callable, Dict, List, Optional, Set

    from trainmaster.agent.checkpoints.candidate_files import Candidate, State
    from trainmaster.agent.checkpoints.pointers import Pointer
    from trainmaster.agent.files.globs import Glob
    from trainmaster.wire.launch import Launch
    from trainmaster.wire.messages import PointerEntry


class Matches:
    """The matches of one agent. `unread` is called with the key of a candidate that cannot be read, and the reason."""

    def __init__(self, launch: Launch, unread: Callable[[str, str], None]) -> None:
        self._launch = launch
        self._unread = unread
        self._earlier: Dict[str, State] = {}  # what was there when this attempt began
        self._elsewhere_before: AbstractSet[str] = frozenset()  # `_elsewhere` at the start
        self._pointers: Dict[str, Pointer] = {}  # as each was last read
        self.glob: Optional[Glob] = None  # since the first `candidates`, where checkpoints are collected
        self.unreadable: Set[str] = set()  # in the last scan

    def candidates(self) -> List[Candidate]:
        """All candidates, lowest step first. Only node 0 has any."""
        if not self._launch["checkpoint_path"] or self._launch["node_index"] != 0:
            return []
        from trainmaster.agent.checkpoints.candidate_files import candidates  # noqa: PLC0415  # slow: only if there is a path
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # likewise

        if self.glob is None:
            self.glob = Glob(self._launch["checkpoint_path"], self._launch["work"])
        self.unreadable.clear()
        glob = self.glob
        return [self._own_part(glob, one) for one in candidates(glob, self._cannot_read)]

    def was_there(self, candidate: Candidate) -> None:
        """It was there, and complete, when this attempt began."""
        self._earlier[candidate.key] = candidate.state

    def note_elsewhere(self) -> None:
        """Note what is there now of the matches that nobody collects."""
        self._elsewhere_before = frozenset(self._elsewhere())

    def written_elsewhere(self) -> Optional[str]:
        """A match that this node's ranks wrote where nothing is collected (see `_elsewhere`); None if there is none."""
        return next((path for path in self._elsewhere() if path not in self._elsewhere_before), None)

    def advice(self) -> str:
        """What is wrong with the checkpoint pattern, by what it matches; "" if nothing shows that."""
        if self.glob is None or self._launch["node_index"] != 0:
            return ""
        from trainmaster.agent.checkpoints.pattern_advice import advice  # noqa: PLC0415  # loaded with the glob

        return advice(self.glob, self.candidates(), self._launch)

    @property
    def denied(self) -> str:
        """A directory that matches may be in, and that the last scan had no permission to read; "" if there is none."""
        return next(iter(self.glob.denied), "") if self.glob is not None else ""

    def learn_pointers(self, glob: Glob) -> None:
        """Remember the pointers: one may be empty or away at the moment at which a checkpoint is staged."""
        from trainmaster.agent.checkpoints.pointers import pointers  # noqa: PLC0415  # loaded with the glob

        self._pointers.update((one.path, one) for one in pointers(glob, glob.expand()))

    def learn_stored(self, glob: Glob) -> bool:
        """Take the ends of unfinished names from the job's checkpoints on record: this attempt's first save may pause, too.

        Returns whether numbers of names are known to be no steps: one on record has a number, and another step.
        """
        from trainmaster.agent.files.fast_json import read_json  # noqa: PLC0415  # only for a restart

        unnumbered = False
        for point in self._launch["resume"]:
            try:
                manifest = read_json(os.path.join(point["root"], "n0", MANIFEST))
                root = min(manifest["directories"] or [one["path"] for one in manifest["files"]], key=len)
                unnumbered = unnumbered or (manifest["approximate"] and glob.step(root) is not None)
                # Of another job, which may have run another program, the ends are not taken.
                own = os.path.dirname(point["root"]) == self._launch["checkpoint_store"]
                ends = manifest.get("temporary", []) if own else []
            except (OSError, ValueError, AttributeError, KeyError, TypeError):
                continue  # not in this node's cache, or damaged: it is learned again
            for suffix in ends:
                glob.learn_temporary(suffix)
        return unnumbered

    def pointers_to(self, glob: Glob, root: str) -> Dict[str, PointerEntry]:
        """Those of the pointers that are beside the match `root`, made to name it."""
        from trainmaster.agent.checkpoints.pointers import entries_for  # noqa: PLC0415  # loaded with the glob

        return entries_for(glob, self._pointers.values(), root)

    def _own_part(self, glob: Glob, candidate: Candidate) -> Candidate:
        """Of a step that an earlier attempt saved elsewhere, what this attempt saved."""
        before = self._earlier.get(candidate.key)
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
        from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # as in `candidates`

        return Glob(launch["checkpoint_path"], launch["work"]).expand()

    def _cannot_read(self, key: str, error: OSError) -> None:
        """Its current state is unknown: what was known of it is kept."""
        self.unreadable.add(key)
        self._unread(key, str(error))
