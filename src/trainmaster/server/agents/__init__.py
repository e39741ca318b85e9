"""Routes for agents: sync, orders, file transfers, and commands that run beside the ranks.

Every write is fenced by the attempt number. Routes for users are in the other packages.
"""
