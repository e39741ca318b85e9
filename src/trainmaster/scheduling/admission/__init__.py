"""Whether a job may start at all: what the nodes could ever hold, maintenance windows, quotas."""
