"""`with sdk.checkpoint(step) as directory:` — a directory to write into. Its content at the end of the block is committed.

With `ranks="one"` rank 0 writes the checkpoint. Every other rank gets a directory too, so that all ranks can run the same
code; its content is discarded. With `ranks="all"` all ranks of a node share one directory. Each writes its own file names,
and the checkpoint is complete when every rank of every node has left its block.
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

_times: Dict[Tuple[int, str], int] = {}  # number of checkpoints per step: each gets its own directory

_STEP_MAX = 2**63 - 1  # the largest step that can be recorded

_said: List[int] = []  # the step of the warning, which is given once


class checkpoint:  # lower case, because it is used like a function
    """A context manager that gives a directory (a `Path`) to write into: `with sdk.checkpoint(step) as directory:`.

    What is in it at the end of the block is the checkpoint. If an exception leaves the block, the directory is discarded and
    the exception is raised on.

    `step`: the checkpoint's step. `ranks`: "one" (only rank 0's directory counts) or "all" (call it on every rank). An empty
    checkpoint does not count. Outside a job, or if the directory cannot be created, a temporary directory is used and
    removed. Raises: TypeError if the step is no number, ValueError for another `ranks` or a step beyond 2**63.
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
        from pathlib import Path  # noqa: PLC0415  # keeps the import of the SDK fast

        self._counts = self._ranks == "all" or own_rank() == 0
        self._directory = self._make() or self._temporary()
        return Path(self._directory)

    def _make(self) -> Optional[str]:
        """The directory that the agent stages; None outside a job, or if it cannot be created (which is counted)."""
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
            return  # other ranks still write into it; without this rank's message it is never complete
        from trainmaster.wire import disks  # noqa: PLC0415  # only if something is discarded

        disks.discard(self._directory)

    def _compare(self) -> None:
        """Warn once if the step counted by reports differs from the step of this checkpoint."""
        reported = CHANNEL.step
        if _said or not CHANNEL.counts or reported is None or abs(reported - self._step) <= 1:
            return  # the count may begin at 0 or at 1
        _said.append(self._step)
        import warnings  # noqa: PLC0415  # rarely needed

        warnings.warn(
            f"sdk.checkpoint({self._step}): sdk.report() without a step has counted to {reported}; after a restart it would go "
            "on from the checkpoint's step: give it the step, sdk.report(step=…)",
            stacklevel=3,
        )
