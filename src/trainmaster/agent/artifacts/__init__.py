"""Artifacts of a job: what each file is, and copying it durably into the store.

Checkpoints are in `checkpoints`; bytes on their way to a remote store are in `transport`.
"""
