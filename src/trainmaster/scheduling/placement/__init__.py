"""Which nodes a gang gets, and which of several choices a job gets."""
