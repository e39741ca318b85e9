"""Traces in, measures out: the production decisions under a virtual clock."""
