"""Which nodes a gang is given, and which of several kinds of GPU."""
