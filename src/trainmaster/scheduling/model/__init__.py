"""The scheduler's own types: what is asked for, nodes and what is free of them, jobs, the snapshot and the plan."""
