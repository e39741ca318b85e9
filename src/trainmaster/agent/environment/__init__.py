"""Describes the environment of the ranks for the record: the machine, the Python and the installed packages.

Creating an environment is in `launch`. Nothing here is needed before the ranks run.
"""
