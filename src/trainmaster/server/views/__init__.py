"""Jobs, nodes and events as JSON and as text, and the lookup of the job that a request names.

This package only formats and finds. It changes nothing.
"""
