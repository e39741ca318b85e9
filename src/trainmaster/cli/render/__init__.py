"""Values as text and drawings: tables, curves, times, HTML figures.

Almost all of it is pure; nothing here asks the server.
"""
