"""The check of a collected checkpoint while it is staged: its copies are examined, and its source is scanned again."""

from trainmaster.agent.checkpoints import candidate_files
from trainmaster.agent.files import formats
from trainmaster.agent.files.globs import Glob
from trainmaster.agent.files.stage import Check


class CompletenessCheck(Check):
    """`prove`: the format must prove every copy. Otherwise no copy may be certainly torn."""

    def __init__(self, glob: Glob, candidate: candidate_files.Candidate, prove: bool) -> None:
        self.torn = False
        self._glob = glob
        self._candidate = candidate
        self._prove = prove

    def file(self, copy: str) -> bool:
        """Whether the copy is complete, as far as its format can tell."""
        verdict = formats.examine(copy)
        self.torn = self.torn or verdict.torn
        return verdict.format is not None if self._prove else not verdict.torn

    def settled(self) -> bool:
        """Whether the source is unchanged. A single file was compared through its descriptor; here the listing is compared."""
        return not self._candidate.many or self._candidate == candidate_files.again(self._glob, self._candidate)
