"""Checkpoints that ranks write through the SDK: staged as this node's part when every participating rank has written.

With `ranks="all"`, all ranks of a node write into one shared directory per step, so their files are merged by name. The
directories belong to Trainmaster and are removed after staging. What could not be staged stays until a later one is stored:
it may be the only copy, and its report names the directory.
"""

import errno
import os
import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from trainmaster.agent.checkpoints.unstored import Unstored
from trainmaster.agent.files import stage
from trainmaster.agent.files.globs import files_below, links_below, signature
from trainmaster.wire import disks
from trainmaster.wire.launch import Launch
from trainmaster.wire.names import checkpoint_prefix, printable

PAUSES_S = (0.1, 0.4)  # between the tries to read one
_FOR_GOOD = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENAMETOOLONG)  # not retried

_NAMED_MAX = 8  # ranks listed in a message
_TRY = re.compile(r"all--?\d+-(\d{1,9})\Z")  # `sdk.checkpoints` counts the blocks of a step; one that raised counts


class _Empty(Exception):
    """The checkpoint is empty: a restart from it would begin at step 0."""


class _Written(NamedTuple):
    step: Optional[int]
    directory: str
    parts_expected: int


class SdkParts:
    """The SDK checkpoints of one agent."""

    def __init__(
        self, launch: Launch, start_early: Callable[[str], Optional[stage.Check]], unstored: Optional[Unstored] = None
    ) -> None:
        self._launch, self._start_early, self._unstored = launch, start_early, unstored or Unstored(launch)
        self._left: List[str] = []  # directories of checkpoints that could not be staged, since one was
        self._ranks: Dict[Tuple[Optional[int], str], Set[int]] = {}  # (step, directory) -> ranks that have written
        self._put_off: List[_Written] = []  # complete, but not staged yet because the disk was full
        self._numbers: Dict[str, int] = {}  # what an id has of the step -> number of the newest checkpoint with it

    def written(self, rank: int, step: Optional[int], directory: str, ranks: str) -> List[Dict[str, Any]]:
        """A rank left its block. Returns what could be staged because of it (fields of `wire.messages.Staged`)."""
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
        """Every rank is past the earlier steps: checkpoints of these that some rank has not finished are dropped."""
        for key in [key for key in self._ranks if key[0] is not None and step is not None and key[0] < step]:
            self._unstored.lost(f"of step {key[0]}", self._missing(self._ranks.pop(key)))
            disks.discard(key[1])

    def report_unfinished(self, now: bool = False) -> None:
        """Report the oldest checkpoint that some rank has not written, if it takes long. `now`: no rank will write it."""
        for (step, _), ranks in self._ranks.items():
            self._unstored.waits(f"of step {step}", self._missing(ranks), now)
            return

    def _missing(self, ranks: Set[int]) -> str:
        some = ", ".join(str(rank) for rank in sorted(ranks)[:_NAMED_MAX]) + (", …" if len(ranks) > _NAMED_MAX else "")
        return (
            f"of {self._launch['ranks']} ranks of this node only {some} ended a block of it: with ranks=\"all\" each one must, "
            "with the same step"
        )

    def retry(self) -> List[Dict[str, Any]]:
        """Stage what is complete, in order. If the disk is full, it is retried next time.

        A checkpoint that cannot be staged for another reason is reported and skipped: later ones are more valuable.
        """
        staged: List[Dict[str, Any]] = []
        while self._put_off:
            written = self._put_off[0]
            name = f"of step {written.step}"
            try:
                staged.append(self._with_retries(written))
                self._unstored.staged(staged[-1]["id"], name, written.step)
                self._done_with(written)
                self._discard_left()
            except stage.Raced:
                self._unstored.lost(name, "it was changed after its block had ended")
                self._done_with(written)
            except _Empty:
                self._unstored.lost(name, "nothing was written into it: it holds no file with a byte in it")
                self._done_with(written)
            except OSError as error:
                if stage.disk_full(error):
                    self._unstored.missed(name, str(error))
                    return staged
                place = f"{printable(written.directory)} at least until a later checkpoint is stored"
                stays = f"; its files stay in {place}" if os.path.isdir(written.directory) else ""
                self._unstored.lost(name, f"{printable(str(error))}{stays}")
                self._done_with(written, keep=True)
        return staged

    def _done_with(self, written: _Written, keep: bool = False) -> None:
        """Remove its files, or keep them."""
        self._numbers[_of_step(written)] = self._number(written)
        self._put_off.pop(0)
        if keep:
            self._left.append(written.directory)
        else:
            disks.discard(written.directory)

    def _discard_left(self) -> None:
        """A later checkpoint is staged. If the store is remote, its upload may still fail: then they stay with the attempt."""
        if not self._launch.get("remote"):
            for directory in self._left:
                disks.discard(directory)
            self._left = []

    def _number(self, written: _Written) -> int:
        """Which checkpoint of its step it is. All nodes must give its parts the same number, also if a block of one raised."""
        told = _TRY.match(os.path.basename(written.directory))
        return max(int(told[1]) if told else 1, self._numbers.get(_of_step(written), 0) + 1)

    def _with_retries(self, written: _Written) -> Dict[str, Any]:
        """Stage with retries. Raises: stage.Raced, _Empty, OSError that a retry cannot solve or has not solved."""
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
        states = {name: signature(os.stat(os.path.join(root, name))) for name in files}
        if written.parts_expected == 1 and not any(state[2] for state in states.values()):
            raise _Empty(root)
        sources = [stage.Source(os.path.join(root, name), name, state) for name, state in states.items()]
        inside, links = [name for name in directories if name], tuple(links_below(root, directories))
        content = stage.Content("sdk", written.step, False, written.parts_expected, inside, sources, links)
        number = self._number(written)
        prefix = checkpoint_prefix(self._launch["attempt"], self._launch["home"])
        identifier = f"{prefix}{_of_step(written)}{f'-{number}' if number > 1 else ''}"
        return stage.stage(self._launch, identifier, content, self._start_early(identifier) or stage.Check())


def _of_step(written: _Written) -> str:
    """What the id has of the step. A checkpoint of several nodes differs from one of rank 0, which only node 0 numbers."""
    return f"s{written.step}{'-all' if written.parts_expected > 1 else ''}"
