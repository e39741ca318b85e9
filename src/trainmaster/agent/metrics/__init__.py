"""Output and resource usage of the ranks, as steps and metric points.

Numbering the points and sending them is in `transport`.
"""
