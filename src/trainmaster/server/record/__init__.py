"""Routes about the record of a run: artifacts, notes, provenance, comparison, reproduction.

What is not recorded is not guessed: it is listed as not compared.
"""
