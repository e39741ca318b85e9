"""Blobs: checkpoints, code and artifacts under their digests, in a directory or an object store.

Which blob is still needed is known to the event log, not here.
"""
