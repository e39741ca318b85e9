"""`from trainmaster import sdk` inside a training program: report metrics, save checkpoints, and check for orders.

Laws: Outside a job every call does nothing and returns a sensible value. A fault on our side (a full disk, a dead agent) is
never raised into the training: the message is dropped and counted (`dropped`). A report costs less than 20 microseconds.
All calls work in a forked data loader. Standard library only, Python 3.9 or later.
"""

from trainmaster.sdk.channel import artifact, dropped, report, should_checkpoint, should_stop
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import attempt, job, params, rank, resume_dir, world_size

__all__ = [
    "artifact",
    "attempt",
    "checkpoint",
    "dropped",
    "job",
    "params",
    "rank",
    "report",
    "resume_dir",
    "should_checkpoint",
    "should_stop",
    "world_size",
]
