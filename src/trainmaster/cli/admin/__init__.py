"""Commands about the server, the cluster and this machine's settings.

Commands about jobs are in `jobs` (they change something) and `inspect` (they only read).
"""
