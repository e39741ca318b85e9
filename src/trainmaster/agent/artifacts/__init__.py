"""Artifacts of a job: determine the kind of each file, and copy it durably into the store.

Checkpoints are in `checkpoints`; uploads to a remote store are in `transport`.
"""
