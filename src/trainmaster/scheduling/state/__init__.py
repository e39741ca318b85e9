"""The state that a decision reads: free capacity, the queue and the running jobs. Events keep it up to date."""
