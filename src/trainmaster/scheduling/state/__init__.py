"""What a decision reads, kept up to date by events: free capacity, the queue, what runs."""
