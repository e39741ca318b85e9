"""Logs and events as they come: reads that wait, and server-sent events.

Waking the readers is in `runtime`.
"""
