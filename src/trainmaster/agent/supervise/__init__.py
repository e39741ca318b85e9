"""The main loop while the ranks run: orders, commands beside the ranks, storing, stopping, and the exit record.

One thread decides. Everything that may block has a thread of its own, which wakes the main loop.
"""
