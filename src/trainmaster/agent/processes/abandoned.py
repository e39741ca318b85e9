"""Files that a process had open for writing when it ended: nobody knows whether it had finished them.

A saver that runs out of memory, or a program that a shell line starts again, leaves half a file while its rank lives on. The
file is then closed and unchanged, like a complete one. So does a rank that exits in the middle of a save because it is stopped.
"""

from __future__ import annotations

from trainmaster.wire.processes import start_ticks

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Dict, Mapping, Optional, Tuple

    from trainmaster.agent.processes.process_tree import File, Process

    Signature = Tuple[int, int, int, int]  # as in `files.globs`

_FILES_MAX = 10_000  # remembered


class Abandoned:
    """Such files, by what looks at open files have shown."""

    def __init__(self) -> None:
        self._open: Mapping[File, AbstractSet[Process]] = {}  # at the last look
        self._left: Dict[File, Optional[Signature]] = {}  # with its state when it was asked about first

    def look(self, open_files: Mapping[File, AbstractSet[Process]]) -> None:
        """`open_files`: all that are open for writing now, each with its processes; without any if one is a rank."""
        for file in open_files:
            self._left.pop(file, None)
        for file, processes in self._open.items():
            if file not in open_files and processes and all(map(_ended, processes)):
                self._left[file] = None
        for file in list(self._left)[:-_FILES_MAX]:
            del self._left[file]
        self._open = open_files

    def end(self, opened: Mapping[File, AbstractSet[Process]], stopped: bool) -> None:
        """Every rank exited 0: by itself, which also says that its savers succeeded, or because it was `stopped`.

        `opened`: what processes had open when they were told to end. One may end in the middle of a save, and exit 0.
        """
        if not stopped:
            self._open, self._left = {}, {}
        self._open = {**self._open, **opened}
        self.look({})

    def has(self, signed: Signature) -> bool:
        """Whether every process that had the file open ended before it was seen closed, and the file is unchanged since."""
        file = signed[:2]
        if file in self._left and self._left[file] is None:
            self._left[file] = signed
        return self._left.get(file) == signed


def _ended(process: Process) -> bool:
    pid, ticks = process
    return ticks is None or start_ticks(pid) != ticks
