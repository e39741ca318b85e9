"""Contract suites, builders and the simulated world: for our own tests and for third-party adapters.

No production code imports it.
"""
