"""A spec file, `cluster.yaml` or a mapping to the values of `trainmaster.model`, and back.

Every fault is told with its file, line and column. What a value means for a job is not decided here.
"""
