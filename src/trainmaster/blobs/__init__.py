"""Blob stores: checkpoints, code and artifacts under their digests, in a directory or an object store.

The event log, not this package, knows which blobs are still needed.
"""
