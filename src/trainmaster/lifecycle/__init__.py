"""The life-cycle state machine: one table keyed by (state, event type). It alone assigns a job's state."""
