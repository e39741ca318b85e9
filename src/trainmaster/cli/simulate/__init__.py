"""`tm simulate`: replays, and their reports.

The replay itself is in `trainmaster.simulator`.
"""
