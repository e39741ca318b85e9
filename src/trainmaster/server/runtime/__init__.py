"""What the api process holds while it runs: stores, workers, credentials, waiting readers, limits.

Everything above gets it by `runtime.of(request)`. No route.
"""
