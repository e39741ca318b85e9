"""The Alembic environment: one history for the three stores. Each revision has `upgrade_events`, `upgrade_inbox` and
`upgrade_metrics`; there is no way back (`downgrade` raises), a copy of the file is the way back.
"""
