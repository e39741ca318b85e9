"""Processes below the agent: starting them, the tree of them, what the main loop sleeps on.

When to stop one, and what its end means, is in `supervise`.
"""
