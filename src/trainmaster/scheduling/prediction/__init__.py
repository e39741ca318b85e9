"""Predictions of run times, learned from ended jobs."""
