"""Logs and events as streams: long polling and server-sent events.

The notification of waiting readers is in `runtime`.
"""
