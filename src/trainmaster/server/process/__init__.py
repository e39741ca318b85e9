"""The processes of a server: their start, their sockets, the assembled app, and bringing each other back.

Routes are in the other rooms.
"""
