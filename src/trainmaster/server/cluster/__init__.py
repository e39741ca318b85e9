"""Routes about the cluster as a whole: its rules, nodes, usage, metrics, tokens and troubles.

The decisions are made by `trainmaster.control`; nothing here starts or stops a job.
"""
