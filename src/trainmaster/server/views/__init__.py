"""Jobs, nodes and events as JSON values and as text, and finding the job that a request names.

Decides how things look outside; changes nothing.
"""
