"""The simulated engine: attempts under a virtual clock, with the faults that real engines have shown.

For tests and replays; no process is started.
"""
