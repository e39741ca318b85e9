"""Everything up to the moment the ranks run: work directory, code, environment, rendezvous, start.

It is the hot path of the agent: nothing heavy is imported here. Restoring a checkpoint is in `checkpoints`.
"""
