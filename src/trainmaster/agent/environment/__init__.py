"""What the ranks run in, for the record: the machine, the Python and the installed packages.

Making an environment is in `launch`. Nothing here is needed before the ranks run.
"""
