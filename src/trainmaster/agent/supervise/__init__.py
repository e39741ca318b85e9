"""The main loop while the ranks run: orders, commands beside the ranks, storing, stopping, and how it ended.

One thread decides; everything that may block has a thread of its own and wakes it.
"""
