"""The metric store: points, heartbeats, curves, thinning, and the feed for mirrors.

Events and commands are in the parent package.
"""
