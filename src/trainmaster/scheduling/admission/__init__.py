"""Whether a job may start at all: what nodes could ever hold, maintenance windows, quotas."""
