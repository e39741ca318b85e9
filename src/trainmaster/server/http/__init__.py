"""HTTP below the routes: who may enter, bodies, errors, the bounds of parameters, permissions, idempotency keys.

No route and nothing about jobs.
"""
