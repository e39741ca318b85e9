"""The fields of a spec: how each value is read, its bounds, and its JSON Schema.

Faults get their place in the file in `yaml`.
"""
