"""Who makes way for whom, and nodes on their way from one job to another."""
