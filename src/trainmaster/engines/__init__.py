"""Engines: start, observe and stop attempts on machines. Each engine passes the contract suite of `trainmaster.testing`.

Engines do not import each other.
"""
