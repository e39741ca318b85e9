"""`with sdk.checkpoint(step) as directory:` — a directory to write into; what is in it when the block ends is committed.

With `ranks="one"` rank 0 writes the checkpoint; every other rank gets a directory too, so that the same code runs on all,
and what it writes there is thrown away. With `ranks="all"` all ranks of a node share one directory: each writes its own
file names, and the checkpoint counts once every rank of every node has left its block.
"""

import os
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from trainmaster.sdk.channel import CHANNEL, whole
from trainmaster.sdk.context import rank as own_rank
from trainmaster.wire.names import ENV_CHECKPOINT_DIR, ENV_SDK

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Type

_times: Dict[Tuple[int, str], int] = {}  # checkpoints of a step so far: each gets a directory of its own

_STEP_MAX = 2**63 - 1  # what is recorded holds no more

_said: List[int] = []  # the step at which a warning was given: one is enough


class checkpoint:  # in small letters: read as a verb where it is used
    """A context manager. On an exception the directory is discarded and the exception goes on.

    `step`: the step it is of. `ranks`: "one" (only rank 0's counts) or "all" (called on every rank). Raises: TypeError
    for a step that is no number, ValueError for another `ranks` or a step beyond 2**63. One into which nothing was
    written does not count. Outside a job, or where no directory can be made for it, it is a temporary one that is removed.
    """

    def __init__(self, step: int, ranks: str = "one") -> None:
        if ranks not in ("one", "all"):
            raise ValueError(f'checkpoint(ranks={ranks!r}): it is "one" or "all"')
        self._step = whole(step, "checkpoint")
        if abs(self._step) > _STEP_MAX:
            raise ValueError(f"checkpoint(step={self._step}): no step is so far")
        self._ranks = ranks
        self._directory = ""
        self._counts = False

    def __enter__(self) -> "Path":
        from pathlib import Path  # noqa: PLC0415  # the import of the SDK stays small

        self._counts = self._ranks == "all" or own_rank() == 0
        self._directory = self._make() or self._temporary()
        return Path(self._directory)

    def _make(self) -> Optional[str]:
        """The directory the agent will look into; None outside a job, or where the disk refuses (which is counted)."""
        root = os.environ.get(ENV_CHECKPOINT_DIR)
        if not root or not os.environ.get(ENV_SDK):
            return None
        key = (self._step, self._ranks)
        _times[key] = _times.get(key, 0) + 1
        if self._counts and self._ranks == "all":
            path = os.path.join(root, f"all-{self._step}-{_times[key]}")
        else:
            path = os.path.join(root, f"one-{self._step}-{own_rank()}-{os.getpid()}-{_times[key]}")
        try:
            os.makedirs(path, exist_ok=True)
        except OSError:
            CHANNEL.dropped += 1
            return None
        return path

    def _temporary(self) -> str:
        import tempfile  # noqa: PLC0415  # only outside a job

        self._counts = False
        return tempfile.mkdtemp(prefix="trainmaster-checkpoint-")

    def __exit__(
        self, kind: "Optional[Type[BaseException]]", error: Optional[BaseException], trace: "Optional[TracebackType]"
    ) -> None:
        message = {"t": "c", "step": self._step, "directory": self._directory, "ranks": self._ranks}
        if kind is None and self._counts and CHANNEL.send(message):
            self._compare()
            return
        if self._counts and self._ranks == "all":
            return  # other ranks still write into it; without this rank's word it never counts
        from trainmaster.wire import disks  # noqa: PLC0415  # only where something is thrown away

        disks.discard(self._directory)

    def _compare(self) -> None:
        """Say so, once, where reports without a step have counted to something else than the step of this checkpoint."""
        reported = CHANNEL.step
        if _said or not CHANNEL.counts or reported is None or abs(reported - self._step) <= 1:
            return  # counted from 0 or from 1
        _said.append(self._step)
        import warnings  # noqa: PLC0415  # only where there is something to say

        warnings.warn(
            f"sdk.checkpoint({self._step}): sdk.report() without a step has counted to {reported}; after a restart it would go "
            "on from the checkpoint's step: give it the step, sdk.report(step=…)",
            stacklevel=3,
        )
