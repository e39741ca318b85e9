"""Routes for the cluster as a whole: configuration, nodes, usage, metrics, tokens and server troubles.

`trainmaster.control` makes the decisions. Nothing here starts or stops a job.
"""
