"""The check a collected checkpoint must stand up to while it is staged: its copies judged, its source looked at again."""

from trainmaster.agent.checkpoints import candidate_files, formats
from trainmaster.agent.files.globs import Glob
from trainmaster.agent.files.stage import Check


class Whole(Check):
    """`prove`: every copy must be proven by its format. Otherwise none may be certainly torn."""

    def __init__(self, glob: Glob, candidate: candidate_files.Candidate, prove: bool) -> None:
        self.torn = False
        self._glob = glob
        self._candidate = candidate
        self._prove = prove

    def file(self, copy: str) -> bool:
        """Whether the copy is whole by its format, as far as that can be told."""
        verdict = formats.examine(copy)
        self.torn = self.torn or verdict.torn
        return verdict.format is not None if self._prove else not verdict.torn

    def settled(self) -> bool:
        """A single file was compared through its descriptor; of many the listing must be what it was."""
        return not self._candidate.many or self._candidate == candidate_files.again(self._glob, self._candidate)
