"""The agent: runs beside the ranks of one node on every engine. It starts them, watches them, reports, and records their end.

Only the standard library and `trainmaster.wire`, Python 3.9 syntax. Modules that are needed before the ranks run import
nothing heavy (`json`, `re`, `typing`, `signal` would double an interpreter's start). The rest is imported while they run.
"""
