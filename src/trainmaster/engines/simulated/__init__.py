"""The simulated engine: attempts under a virtual clock, with every fault that a real one has seen.

For tests and replays; no process is started.
"""
