"""On demand: why a job waits, what would let it start, and when it will."""
