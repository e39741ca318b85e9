"""The `tm` command: `app` has the table of commands, each loaded only when it is called.

A command asks `trainmaster.client` and draws the answer; it decides nothing.
"""
