"""Routes and background work that remove or count bytes: garbage collection, retention, code copies.

How bytes are stored is in `trainmaster.blobs`.
"""
