"""Runs beside the ranks of one node on every engine: starts them, watches them, reports, and records how they ended.

Standard library and `trainmaster.wire` only, Python 3.9 syntax. Modules that are needed before the ranks run import
nothing heavy (`json`, `re`, `typing`, `signal` would double an interpreter's start); the rest is imported while they run.
"""
