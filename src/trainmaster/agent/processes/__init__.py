"""Processes below the agent: starting them, walking their tree, and waking the main loop.

When to stop a process, and what its end means, is in `supervise`.
"""
