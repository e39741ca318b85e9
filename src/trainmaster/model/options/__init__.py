"""What options of a job mean: when it may start, who is told of its end, and parameters in its commands."""
