"""Routes for the record of a run: artifacts, notes, provenance, comparison and reproduction.

Nothing is guessed: a value that was not recorded is listed as not compared.
"""
