"""The Alembic environment: one history for the three stores. Each revision has `upgrade_events`, `upgrade_inbox` and
`upgrade_metrics`. Downgrades are not supported (`downgrade` raises): restore a copy of the file instead.
"""
