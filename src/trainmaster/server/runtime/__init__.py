"""State of the running api process: stores, worker pools, credentials, notifications and limits.

Other packages get it with `runtime.of(request)`. There are no routes here.
"""
