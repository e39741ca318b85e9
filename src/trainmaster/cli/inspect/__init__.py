"""Commands that only read: jobs, nodes, the queue, logs, artifacts, comparisons.

Drawing is in `render`.
"""
