"""Reservations for jobs that cannot start yet, and which jobs may be backfilled beside them."""
