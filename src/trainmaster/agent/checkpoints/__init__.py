"""Checkpoints of a job: find them, prove that they are complete, stage them, and restore the last good one.

Uploading staged checkpoints to a remote store is in `transport`. The server picks the checkpoints to resume from.
"""
