"""Metrics in files that the program writes row by row, `metrics.files` of the spec.

`rows` reads one such file, `reader` all of them while the program runs, and `advice` names one that nothing reads.
"""
