"""Routes and background work that delete or count stored bytes: garbage collection, retention, code copies.

`trainmaster.blobs` stores the bytes.
"""
