"""Everything until the ranks run: work directory, code, environment, rendezvous, start.

This is the agent's hot path: nothing heavy is imported here. Restoring a checkpoint is in `checkpoints`.
"""
