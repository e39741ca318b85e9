"""Transport between this node and the server or a remote store: reports, orders, metric points, files.

Everything is numbered and stays on this node until it is acknowledged. Nothing here decides anything about the job.
"""
