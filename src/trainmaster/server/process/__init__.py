"""The server's processes: start-up, sockets, the assembled app, and the watchdog that restarts a dead process.

The routes are in the other packages.
"""
