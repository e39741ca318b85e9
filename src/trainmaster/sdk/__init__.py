"""`from trainmaster import sdk` inside a training program: report, checkpoint, and ask what is wanted of it.

Laws: outside a job every call is a no-op with a sane value; nothing that is broken on our side (a full disk, a dead
agent) is ever raised into the training, it is dropped and counted (`dropped`); a report costs under 20 microseconds; a
forked data loader may call all of it. Standard library only, Python 3.9 or later.
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
