"""Checkpoints of a job: finding them, proving that they are complete, staging them, and restoring the last good one.

Sending staged bytes to a remote store is in `transport`; the rule that picks the checkpoint to resume from is the
server's.
"""
