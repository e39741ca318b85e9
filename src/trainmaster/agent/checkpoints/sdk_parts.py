"""Checkpoints that ranks write through the SDK: staged as this node's part once every rank that takes part has written.

All ranks of a node write into one shared directory per step (`ranks="all"`), so their files are merged by name. The
directories are ours: once staged they are removed.
"""

import errno
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from trainmaster.agent.checkpoints.unstored import Unstored
from trainmaster.agent.files import stage
from trainmaster.agent.files.globs import files_below, links_below, signature
from trainmaster.wire import disks
from trainmaster.wire.launch import Launch
from trainmaster.wire.names import printable

PAUSES_S = (0.1, 0.4)  # between the tries to read one
_FOR_GOOD = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENAMETOOLONG)  # no try changes it

_NAMED_MAX = 8  # ranks in a sentence


class _Empty(Exception):
    """No byte was written into it: whoever went on from it would begin anew."""


class _Written(NamedTuple):
    step: Optional[int]
    directory: str
    parts_expected: int


class SdkParts:
    """One agent's checkpoints by the SDK."""

    def __init__(
        self, launch: Launch, ahead: Callable[[str], Optional[stage.Check]], unstored: Optional[Unstored] = None
    ) -> None:
        self._launch, self._ahead, self._unstored = launch, ahead, unstored or Unstored(launch)
        self._left: Optional[str] = None  # the directory of the last one that was passed over
        self._ranks: Dict[Tuple[Optional[int], str], Set[int]] = {}  # (step, directory) -> ranks that have written
        self._put_off: List[_Written] = []  # complete, and not staged yet: the disk was full
        self._times: Dict[Optional[int], int] = {}  # step -> checkpoints of it so far

    def written(self, rank: int, step: Optional[int], directory: str, ranks: str) -> List[Dict[str, Any]]:
        """One rank left its block; returns what could be staged by that (fields of `wire.messages.Staged`)."""
        if ranks == "one":
            self._put_off.append(_Written(step, directory, 1))
            return self.retry()
        reported = self._ranks.setdefault((step, directory), set())
        reported.add(rank)
        if len(reported) < self._launch["ranks"]:
            return []
        del self._ranks[(step, directory)]
        self._discard_older(step)
        self._put_off.append(_Written(step, directory, self._launch["nodes"]))
        return self.retry()

    def _discard_older(self, step: Optional[int]) -> None:
        """Every rank is past the steps before: what some rank of them never finished stays unfinished."""
        for key in [key for key in self._ranks if key[0] is not None and step is not None and key[0] < step]:
            self._unstored.lost(f"of step {key[0]}", self._missing(self._ranks.pop(key)))
            disks.discard(key[1])

    def tell_unfinished(self, now: bool = False) -> None:
        """Say so of the oldest that not every rank has written, if it takes long; `now`: nobody will write any more."""
        for (step, _), ranks in self._ranks.items():
            self._unstored.waits(f"of step {step}", self._missing(ranks), now)
            return

    def _missing(self, ranks: Set[int]) -> str:
        who = ", ".join(str(rank) for rank in sorted(ranks)[:_NAMED_MAX]) + (", …" if len(ranks) > _NAMED_MAX else "")
        return (
            f"of {self._launch['ranks']} ranks of this node only {who} ended a block of it: with ranks=\"all\" each one must, "
            "with the same step"
        )

    def retry(self) -> List[Dict[str, Any]]:
        """Stage what is complete, in order; what the disk has no room for stays for the next time.

        One that cannot be staged for any other reason is told and passed over: the later ones are worth more.
        """
        staged: List[Dict[str, Any]] = []
        while self._put_off:
            written = self._put_off[0]
            name = f"of step {written.step}"
            try:
                staged.append(self._patiently(written))
                self._unstored.stored(name, written.step)
                self._done_with(written, None)
            except stage.Raced:
                self._unstored.lost(name, "it was changed after its block had ended")
                self._done_with(written, None)
            except _Empty:
                self._unstored.lost(name, "nothing was written into it: it holds no file with a byte in it")
                self._done_with(written, None)
            except OSError as error:
                if stage.disk_full(error):
                    self._unstored.missed(name, str(error))
                    return staged
                stays = f"; its files stay in {printable(written.directory)}" if os.path.isdir(written.directory) else ""
                self._unstored.lost(name, f"{printable(str(error))}{stays}")
                self._done_with(written, written.directory)
        return staged

    def _done_with(self, written: _Written, left: Optional[str]) -> None:
        """Remove its files, or leave them (`left`) until a later one is stored or left."""
        self._times[written.step] = self._times.get(written.step, 0) + 1
        self._put_off.pop(0)
        for directory in (self._left, written.directory):
            if directory is not None and directory != left:
                disks.discard(directory)
        self._left = left

    def _patiently(self, written: _Written) -> Dict[str, Any]:
        """Raises: stage.Raced, _Empty, OSError that another try would not change, or has not."""
        pauses = list(PAUSES_S)
        while True:
            try:
                return self._stage(written)
            except OSError as error:
                if not pauses or stage.disk_full(error) or error.errno in _FOR_GOOD:
                    raise
                time.sleep(pauses.pop(0))

    def _stage(self, written: _Written) -> Dict[str, Any]:
        root = written.directory
        os.stat(root)
        files, directories = files_below(root, "")
        sources = [stage.Source(os.path.join(root, name), name, signature(os.stat(os.path.join(root, name)))) for name in files]
        if written.parts_expected == 1 and not any(source.signature[2] for source in sources):
            raise _Empty(root)
        inside, links = [name for name in directories if name], tuple(links_below(root, directories))
        content = stage.Content("sdk", written.step, False, written.parts_expected, inside, sources, links)
        again = self._times.get(written.step, 0)
        suffix = f"-{again + 1}" if again else ""
        identifier = f"{self._launch['attempt']:04d}-s{written.step}{suffix}"
        return stage.stage(self._launch, identifier, content, self._ahead(identifier) or stage.Check())
