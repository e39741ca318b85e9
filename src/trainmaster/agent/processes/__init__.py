"""Processes below the agent: starting them, walking their tree, measuring their usage, and waking the main loop.

When to stop a process, and what its end means, is in `supervise`.
"""
