"""`cluster.yaml`: reading it, writing it back, and its rules in plain language.

What the rules mean for scheduling is in `trainmaster.scheduling`.
"""
