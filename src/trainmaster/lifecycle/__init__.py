"""The state machine: one table keyed by (state, event type). It alone assigns a job's state."""
