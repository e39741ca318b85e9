"""Contract suites, builders and the simulated world: for our tests and for adapters that others write.

Nothing of the product imports it.
"""
