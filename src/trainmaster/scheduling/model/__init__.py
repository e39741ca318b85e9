"""The types of the scheduler: requests, nodes and their free capacity, jobs, the snapshot and the plan."""
