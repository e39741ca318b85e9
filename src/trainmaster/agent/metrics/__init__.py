"""What the ranks print and use, as steps and metric points.

Numbering the points and sending them is in `transport`.
"""
