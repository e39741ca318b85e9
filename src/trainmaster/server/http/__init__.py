"""HTTP below the routes: authentication, permissions, bodies, errors, parameter bounds and idempotency keys.

There are no routes here, and nothing about jobs.
"""
