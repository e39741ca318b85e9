"""Checkpoints that ranks write through the SDK: staged as this node's part once every rank that takes part has written.

All ranks of a node write into one shared directory per step (`ranks="all"`), so their files are merged by name. The
directories are ours: once staged they are removed.
"""

import os
import shutil
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from trainmaster.agent import stage
from trainmaster.agent.globs import files_below, signature
from trainmaster.wire.launch import Launch


class _Written(NamedTuple):
    step: Optional[int]
    directory: str
    parts_expected: int


class SdkParts:
    """One agent's checkpoints by the SDK."""

    def __init__(self, launch: Launch, ahead: Callable[[str], Optional[stage.Check]]) -> None:
        self._launch, self._ahead = launch, ahead
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
            del self._ranks[key]
            shutil.rmtree(key[1], ignore_errors=True)

    def retry(self) -> List[Dict[str, Any]]:
        """Stage what is complete, in order; what the disk has no room for stays for the next time."""
        staged: List[Dict[str, Any]] = []
        while self._put_off:
            written = self._put_off[0]
            try:
                staged.append(self._stage(written))
            except (FileNotFoundError, stage.Raced) as error:
                sys.stderr.write(f"checkpoint of step {written.step} is lost: {error!r}\n")
            except OSError as error:
                sys.stderr.write(f"checkpoint of step {written.step} is put off: {error}\n")
                return staged
            self._times[written.step] = self._times.get(written.step, 0) + 1
            self._put_off.pop(0)
            shutil.rmtree(written.directory, ignore_errors=True)
        return staged

    def _stage(self, written: _Written) -> Dict[str, Any]:
        root = written.directory
        os.stat(root)
        files, directories = files_below(root, "")
        sources = [stage.Source(os.path.join(root, name), name, signature(os.stat(os.path.join(root, name)))) for name in files]
        inside = [name for name in directories if name]
        content = stage.Content("sdk", written.step, False, written.parts_expected, inside, sources)
        again = self._times.get(written.step, 0)
        suffix = f"-{again + 1}" if again else ""
        identifier = f"{self._launch['attempt']:04d}-s{written.step}{suffix}"
        return stage.stage(self._launch, identifier, content, self._ahead(identifier) or stage.Check())
