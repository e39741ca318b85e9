"""Room that is kept for jobs that cannot start yet, and who may start beside it."""
