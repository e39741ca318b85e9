"""The routes of agents: sync, orders, the transfer of files, commands beside the ranks.

Every write is fenced by the attempt that sends it. Routes of people are in the other rooms.
"""
