"""One file for each policy: its order, and what else it decides."""
