"""Engines: what starts, observes and stops attempts on machines. Each passes the contract suite of `trainmaster.testing`.

Engines do not import each other.
"""
