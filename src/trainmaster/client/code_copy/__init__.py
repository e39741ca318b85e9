"""The code copy of a submit: what of a work directory belongs to it, its digests, and what git knows.

Uploading it is in `trainmaster.client.submission`.
"""
